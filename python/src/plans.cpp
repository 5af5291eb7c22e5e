// The methods of a plan, and symmetric memory. The files of the calls make their plans.
#include "plans.hpp"

#include "parts.hpp"

#include <tutti/symmetric.hpp>

#include <nanobind/stl/string.h>

namespace tutti::python {
namespace {

nb::object empty_symmetric_array(nb::handle shape, const std::string& dtype, nb::handle group) {
    constexpr const char* name = "empty_symmetric";
    const Extents sizes = shape_of(shape, name);
    const DType type = dtype_from_string(dtype);
    const CollectiveOptions options{.group = group_of(group, name)};
    return to_numpy(without_gil([&] { return empty_symmetric(type, sizes, options); }));
}

}  // namespace

Extents shape_of(nb::handle shape, const char* operation) {
    if (PyLong_Check(shape.ptr())) return Extents::of(nb::cast<std::int64_t>(shape));
    if (!PyList_Check(shape.ptr()) && !PyTuple_Check(shape.ptr())) {
        throw_type_error(operation, "shape", shape, "an integer, or a tuple of integers");
    }
    std::vector<std::int64_t> sizes;
    for (const nb::handle size : shape) sizes.push_back(*rank_of(size, operation, "shape"));
    return Extents(sizes);
}

void bind_plans(nb::module_& m) {
    nb::class_<ArrayPlan>(
        m, "Plan",
        "A call with its arrays, group and options, which are checked once. The arrays stay alive\n"
        "as long as the plan; each run reads and writes them as they are then. One thread at a time.\n\n"
        "Example:\n"
        "    >>> gradient = np.ones(3)\n"
        "    >>> step = dist.plan.all_reduce(gradient, op=dist.ReduceOp.AVG)\n"
        "    >>> for _ in range(10):\n"
        "    ...     step.run()")
        .def(
            "run", [](nb::object self) { nb::cast<ArrayPlan&>(self).run(self); }, nb::sig("def run(self) -> None"),
            "Does the call and blocks until it is done. Raises what the plain call raises; InvalidArgument when what\n"
            "start() began has not finished.")
        .def(
            "start", [](nb::object self) { return nb::cast<ArrayPlan&>(self).start(self); },
            nb::sig("def start(self) -> Work | None"), "Begins the call; the last one must have finished.")
        .def("source_rank", &ArrayPlan::source_rank, "Of a receive: the rank of the last message's sender.");
    m.def("empty_symmetric", &empty_symmetric_array, nb::arg("shape"), nb::arg("dtype"), nb::arg("group") = nb::none(),
          nb::sig("def empty_symmetric(shape: int | collections.abc.Sequence[int], dtype: str, group: ProcessGroup | "
                  "DeviceMesh | None = None) -> typing.Any"),
          "A NumPy array, all zero, in memory that the ranks of a host share: collectives on it copy less. All ranks\n"
          "of the group call it, with equal arguments.");
}

}  // namespace tutti::python
