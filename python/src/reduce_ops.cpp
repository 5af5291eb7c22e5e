// ReduceOp.
#include "operators.hpp"
#include "parts.hpp"

#include <tutti/reduce_op.hpp>

#include <fmt/format.h>
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
        .value("PREMUL_SUM", ReduceOp::Kind::premul_sum)
        .value("USER", ReduceOp::Kind::user);
    auto op =
        nb::class_<ReduceOp>(m, "ReduceOp",
                             "How values of several ranks become one: SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR,\n"
                             "BXOR, and PREMUL_SUM, which multiplies this rank's values by `factor` first;\n"
                             "MINLOC and MAXLOC, for arrays of pairs of a number and an index (a structure of two\n"
                             "fields): the least or greatest number, NaN before all others, and the lowest index\n"
                             "with it; and operators of the caller (of).\n\n"
                             "Example:\n"
                             "    >>> dist.ReduceOp.AVG\n"
                             "    <ReduceOp.AVG: 1>\n"
                             "    >>> dist.all_reduce(np.ones(3), op=dist.ReduceOp.MAX)\n"
                             "    >>> best = np.array([(0.5, dist.get_rank())], dtype='f8, i8')\n"
                             "    >>> dist.all_reduce(best, op=dist.ReduceOp.MINLOC)\n"
                             "    >>> best[0].item()\n"
                             "    (0.5, 0)");
    op.def_static(
        "of", &operator_of, nb::arg("f"), nb::arg("dtype"), nb::kw_only(), nb::arg("commutative") = true,
        nb::arg("name") = "",
        nb::sig("def of(f: collections.abc.Callable[..., typing.Any] | int, dtype: typing.Any, *, commutative: bool = "
                "True, name: str = '') -> "
                "ReduceOp"),
        "An operator of the caller, an associative function of two elements of `dtype`, for all_reduce, reduce,\n"
        "reduce_scatter, scan and exscan of arrays of that type, on host memory. Also the arrays of plans and of\n"
        "asynchronous and coalesced calls.\n\n"
        "Args:\n"
        "    f: a compiled function void(const void* in, void* inout, size_t count, void* context), which does\n"
        "        inout[i] = in[i] op inout[i]: its address, a ctypes function or a numba.cfunc, which must live\n"
        "        as long as the operator; its context is NULL. Or a function f(a, b) of two arrays of equal\n"
        "        length that returns a op b: convenient, and slower, as it waits for the interpreter's lock.\n"
        "        The left operand comes from the lower ranks.\n"
        "    dtype: what numpy.dtype takes, of 1 to 65536 bytes; structures, too.\n"
        "    commutative: a op b equals b op a. False: elements are combined strictly in the order of ranks.\n"
        "    name: for messages; equal on all ranks, as commutative and the size of dtype are.\n\n"
        "`f` runs while an operation makes progress: it must not call tutti, and should not take long. If it\n"
        "raises, the operation fails with Aborted on all ranks, and the group cannot be used any more.\n\n"
        "Example:\n"
        "    >>> pair = np.dtype('f8, f8')\n"
        "    >>> def compose(a, b):  # x -> a.f0 * x + a.f1, and then b\n"
        "    ...     both = np.empty_like(b)\n"
        "    ...     both['f0'], both['f1'] = a['f0'] * b['f0'], a['f1'] * b['f0'] + b['f1']\n"
        "    ...     return both\n"
        "    >>> then = dist.ReduceOp.of(compose, pair, commutative=False, name='then')\n"
        "    >>> maps = np.array([(2.0, 1.0)], dtype=pair)\n"
        "    >>> dist.all_reduce(maps, op=then)\n"
        "    >>> float(maps['f0'][0]) == 2.0 ** dist.get_world_size()\n"
        "    True");
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
                if (value.user() != nullptr)
                    throw nb::type_error("an operator of ReduceOp.of cannot be pickled: make it in each process");
                return nb::make_tuple(self.type(), nb::make_tuple(value.kind(), value.factor()));
            },
            nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
        .def("__copy__", [](const ReduceOp& self) { return self; })
        .def(
            "__deepcopy__", [](const ReduceOp& self, nb::handle /*memo*/) { return self; }, nb::arg("memo"))
        .def("__hash__", [](const ReduceOp& self) { return static_cast<int>(self.kind()); })
        .def("__int__", [](const ReduceOp& self) { return static_cast<int>(self.kind()); })
        .def("__repr__", [](const ReduceOp& self) {
            if (self.user() != nullptr)
                return fmt::format("<ReduceOp.of: \"{}\", {}-byte elements>", self.name(), self.element_bytes());
            std::string name(to_string(self.kind()));
            if (is_loc_of_any(self)) name = self == max_loc_of_any ? "maxloc" : "minloc";
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
    op.attr("MINLOC") = min_loc_of_any;
    op.attr("MAXLOC") = max_loc_of_any;
    m.def("_make_nccl_premul_sum", &ReduceOp::premul_sum, nb::arg("factor"),
          "A PREMUL_SUM that multiplies this rank's input by `factor` first.");
}

}  // namespace tutti::python
