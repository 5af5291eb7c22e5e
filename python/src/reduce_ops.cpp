// ReduceOp.
#include "parts.hpp"

#include <tutti/reduce_op.hpp>

#include <nanobind/operators.h>
#include <nanobind/stl/string.h>

#include <string>

namespace tutti::python {

void bind_reduce_ops(nb::module_& m) {
    nb::enum_<ReduceOp::Kind>(m, "RedOpType", nb::is_arithmetic(), "The kinds of reduction.")
        .value("SUM", ReduceOp::Kind::sum)
        .value("AVG", ReduceOp::Kind::avg)
        .value("PRODUCT", ReduceOp::Kind::product)
        .value("MIN", ReduceOp::Kind::min)
        .value("MAX", ReduceOp::Kind::max)
        .value("BAND", ReduceOp::Kind::band)
        .value("BOR", ReduceOp::Kind::bor)
        .value("BXOR", ReduceOp::Kind::bxor)
        .value("PREMUL_SUM", ReduceOp::Kind::premul_sum);
    auto op = nb::class_<ReduceOp>(m, "ReduceOp",
                                   "How values of several ranks become one: SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR,\n"
                                   "BXOR, and PREMUL_SUM, which multiplies this rank's values by `factor` first.\n\n"
                                   "Example:\n"
                                   "    >>> dist.ReduceOp.AVG\n"
                                   "    <ReduceOp.AVG: 1>\n"
                                   "    >>> dist.all_reduce(np.ones(3), op=dist.ReduceOp.MAX)");
    op.def(nb::init<ReduceOp::Kind, double>(), nb::arg("op") = ReduceOp::Kind::sum, nb::arg("factor") = 1.0)
        .def_prop_ro("op", &ReduceOp::kind)
        .def_prop_ro("factor", &ReduceOp::factor)
        .def(
            "__eq__",
            [](const ReduceOp& self, nb::handle other) {
                return nb::isinstance<ReduceOp>(other) ? self == nb::cast<ReduceOp>(other)
                                                       : nb::int_(static_cast<int>(self.kind())).equal(other);
            },
            nb::sig("def __eq__(self, other: object, /) -> bool"))
        .def(
            "__reduce__",  // for every protocol of pickle, and for copy
            [](nb::handle self) {
                const auto& value = nb::cast<const ReduceOp&>(self);
                return nb::make_tuple(self.type(), nb::make_tuple(value.kind(), value.factor()));
            },
            nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
        .def("__hash__", [](const ReduceOp& self) { return static_cast<int>(self.kind()); })
        .def("__int__", [](const ReduceOp& self) { return static_cast<int>(self.kind()); })
        .def("__repr__", [](const ReduceOp& self) {
            std::string name(to_string(self.kind()));
            for (char& letter : name) letter = static_cast<char>(letter == '_' ? letter : letter - 'a' + 'A');
            return "<ReduceOp." + name + ": " + std::to_string(static_cast<int>(self.kind())) + ">";
        });
    op.attr("SUM") = ReduceOp::sum;
    op.attr("AVG") = ReduceOp::avg;
    op.attr("PRODUCT") = ReduceOp::product;
    op.attr("MIN") = ReduceOp::min;
    op.attr("MAX") = ReduceOp::max;
    op.attr("BAND") = ReduceOp::band;
    op.attr("BOR") = ReduceOp::bor;
    op.attr("BXOR") = ReduceOp::bxor;
    op.attr("PREMUL_SUM") = ReduceOp(ReduceOp::Kind::premul_sum);
    m.def("_make_nccl_premul_sum", &ReduceOp::premul_sum, nb::arg("factor"),
          "A PREMUL_SUM that multiplies this rank's input by `factor` first.");
}

}  // namespace tutti::python
