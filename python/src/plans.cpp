// Plans: calls that are checked once and made often, and symmetric memory.
#include "calls.hpp"
#include "parts.hpp"

#include <tutti/plan.hpp>
#include <tutti/symmetric.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <utility>

namespace tutti::python {
namespace {

// A Plan with the arrays that it was made with.
class ArrayPlan {
 public:
    ArrayPlan(Plan plan, std::vector<Array> arrays, nb::object outputs)
        : plan_(std::move(plan)), arrays_(std::move(arrays)), outputs_(std::move(outputs)) {}

    void run() {
        const nb::gil_scoped_release release;
        plan_.run();
    }
    // The arrays are the plan's, so the plan lives as long as what it has begun.
    nb::object start(const nb::object& self) {
        Work work = without_gil([&] { return plan_.start(); });
        if (!work) return nb::none();
        return PendingWork::object(std::move(work), {}, outputs_, self);
    }
    int source_rank() const { return plan_.source_rank(); }

 private:
    Plan plan_;
    std::vector<Array> arrays_;
    nb::object outputs_;
};

template <class F>
ArrayPlan make(std::vector<Array> arrays, nb::object outputs, F plan) {
    return {without_gil(plan), std::move(arrays), std::move(outputs)};
}

ArrayPlan plan_all_reduce(nb::handle tensor, const ReduceOp& op, nb::handle group) {
    constexpr const char* name = "plan.all_reduce";
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    const AllReduceOptions options{.op = op, .group = group_of(group, name)};
    return make(std::move(arrays), one(tensor), [&] { return plan::all_reduce(view, options); });
}

ArrayPlan plan_broadcast(nb::handle tensor, nb::handle src, nb::handle group, nb::handle group_src) {
    constexpr const char* name = "plan.broadcast";
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    const BroadcastOptions options{.src = rank_of(src, name, "src"),
                                   .group = group_of(group, name),
                                   .group_src = rank_of(group_src, name, "group_src")};
    return make(std::move(arrays), one(tensor), [&] { return plan::broadcast(view, options); });
}

ArrayPlan plan_all_gather_into_tensor(nb::handle output, nb::handle input, nb::handle group) {
    constexpr const char* name = "plan.all_gather_into_tensor";
    auto arrays = list_of(Array(output, writes, name, "output_tensor"), Array(input, reads, name, "input_tensor"));
    const TensorView to = arrays[0].view();
    const ConstTensorView from = arrays[1].view();
    const CollectiveOptions options{.group = group_of(group, name)};
    return make(std::move(arrays), one(output), [&] { return plan::all_gather_into_tensor(to, from, options); });
}

ArrayPlan plan_reduce_scatter_tensor(nb::handle output, nb::handle input, const ReduceOp& op, nb::handle group) {
    constexpr const char* name = "plan.reduce_scatter_tensor";
    auto arrays = list_of(Array(output, writes, name, "output"), Array(input, reads, name, "input"));
    const TensorView to = arrays[0].view();
    const ConstTensorView from = arrays[1].view();
    const ReduceScatterOptions options{.op = op, .group = group_of(group, name)};
    return make(std::move(arrays), one(output), [&] { return plan::reduce_scatter_tensor(to, from, options); });
}

ArrayPlan plan_all_to_all_single(nb::handle output, nb::handle input, nb::handle group) {
    constexpr const char* name = "plan.all_to_all_single";
    auto arrays = list_of(Array(output, writes, name, "output"), Array(input, reads, name, "input"));
    const TensorView to = arrays[0].view();
    const ConstTensorView from = arrays[1].view();
    const AllToAllSingleOptions options{.group = group_of(group, name)};
    return make(std::move(arrays), one(output), [&] { return plan::all_to_all_single(to, from, options); });
}

ArrayPlan plan_barrier(nb::handle group) {
    const BarrierOptions options{.group = group_of(group, "plan.barrier")};
    return make({}, nb::list(), [&] { return plan::barrier(options); });
}

ArrayPlan plan_send(nb::handle tensor, int dst, nb::handle group, int tag) {
    constexpr const char* name = "plan.send";
    auto arrays = list_of(Array(tensor, reads, name, "tensor"));
    const ConstTensorView view = arrays[0].view();
    const SendOptions options{.tag = tag, .group = group_of(group, name)};
    return make(std::move(arrays), nb::list(), [&] { return plan::send(view, dst, options); });
}

ArrayPlan plan_recv(nb::handle tensor, nb::handle src, nb::handle group, int tag) {
    constexpr const char* name = "plan.recv";
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    const RecvOptions options{.src = rank_of(src, name, "src"), .tag = tag, .group = group_of(group, name)};
    return make(std::move(arrays), one(tensor), [&] { return plan::recv(view, options); });
}

nb::object empty_symmetric_array(nb::handle shape, const std::string& dtype, nb::handle group) {
    constexpr const char* name = "empty_symmetric";
    std::vector<std::int64_t> sizes;
    if (PyLong_Check(shape.ptr())) {
        sizes.push_back(nb::cast<std::int64_t>(shape));
    } else {
        for (const nb::handle size : shape) sizes.push_back(nb::cast<std::int64_t>(size));
    }
    const DType type = dtype_from_string(dtype);
    const CollectiveOptions options{.group = group_of(group, name)};
    return to_numpy(without_gil([&] { return empty_symmetric(type, Extents(sizes), options); }));
}

}  // namespace

void bind_plans(nb::module_& m) {
    nb::class_<ArrayPlan>(m, "Plan",
                          "A call with its arrays, group and options, which are checked once. The arrays stay alive\n"
                          "as long as the plan; each run reads and writes them as they are then. One thread at a time.")
        .def("run", &ArrayPlan::run, "Does the call and blocks until it is done.")
        .def(
            "start", [](nb::object self) { return nb::cast<ArrayPlan&>(self).start(self); },
            nb::sig("def start(self) -> Work | None"), "Begins the call; the last one must have finished.")
        .def("source_rank", &ArrayPlan::source_rank, "Of a receive: the rank of the last message's sender.");
    m.def("plan_all_reduce", &plan_all_reduce);
    m.def("plan_broadcast", &plan_broadcast);
    m.def("plan_all_gather_into_tensor", &plan_all_gather_into_tensor);
    m.def("plan_reduce_scatter_tensor", &plan_reduce_scatter_tensor);
    m.def("plan_all_to_all_single", &plan_all_to_all_single);
    m.def("plan_barrier", &plan_barrier);
    m.def("plan_send", &plan_send);
    m.def("plan_recv", &plan_recv);
    m.def("empty_symmetric", &empty_symmetric_array);
}

}  // namespace tutti::python
