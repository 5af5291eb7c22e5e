// The collectives on arrays. Arguments are positional here; tutti.distributed gives them their names and defaults.
#include "parts.hpp"

#include "calls.hpp"

#include <tutti/coalescing.hpp>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

namespace tutti::python {
namespace {

// A call, blocking or not. `outputs`: Work.result().
template <class Blocking, class Async>
OptionalWork run(std::vector<Array> arrays, nb::object outputs, bool async_op, Blocking blocking, Async asynchronous) {
    if (async_op) return begin(std::move(arrays), std::move(outputs), asynchronous);
    block(arrays, blocking);
    return OptionalWork(nb::none());
}

OptionalWork broadcast(nb::handle tensor, nb::handle src, nb::handle group, bool async_op, nb::handle group_src) {
    constexpr const char* name = "broadcast";
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    const BroadcastOptions options{.src = rank_of(src, name, "src"),
                                   .group = group_of(group, name),
                                   .group_src = rank_of(group_src, name, "group_src")};
    return run(
        std::move(arrays), one(tensor), async_op, [&] { tutti::broadcast(view, options); },
        [&] { return async::broadcast(view, options); });
}

OptionalWork all_reduce(nb::handle tensor, const ReduceOp& op, nb::handle group, bool async_op) {
    constexpr const char* name = "all_reduce";
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    const AllReduceOptions options{.op = op, .group = group_of(group, name)};
    return run(
        std::move(arrays), one(tensor), async_op, [&] { tutti::all_reduce(view, options); },
        [&] { return async::all_reduce(view, options); });
}

OptionalWork reduce(nb::handle tensor, nb::handle dst, const ReduceOp& op, nb::handle group, bool async_op,
                    nb::handle group_dst) {
    constexpr const char* name = "reduce";
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    const ReduceOptions options{.dst = rank_of(dst, name, "dst"),
                                .op = op,
                                .group = group_of(group, name),
                                .group_dst = rank_of(group_dst, name, "group_dst")};
    return run(
        std::move(arrays), one(tensor), async_op, [&] { tutti::reduce(view, options); },
        [&] { return async::reduce(view, options); });
}

std::vector<Array> joined(std::vector<Array> list, Array array) {
    list.push_back(std::move(array));
    return list;
}
nb::object as_list(nb::handle list) {
    return list.is_none() ? nb::object(nb::list()) : nb::object(nb::list(nb::borrow(list)));
}

OptionalWork all_gather(nb::handle tensor_list, nb::handle tensor, nb::handle group, bool async_op) {
    constexpr const char* name = "all_gather";
    ArrayList outputs(tensor_list, writes, name, "tensor_list");
    Array input(tensor, reads, name, "tensor");
    const TensorList to = outputs.views();
    const ConstTensorView from = input.view();
    const CollectiveOptions options{.group = group_of(group, name)};
    return run(
        joined(std::move(outputs.arrays), std::move(input)), as_list(tensor_list), async_op,
        [&] { tutti::all_gather(to, from, options); }, [&] { return async::all_gather(to, from, options); });
}

OptionalWork all_gather_into_tensor(nb::handle output, nb::handle input, nb::handle group, bool async_op) {
    constexpr const char* name = "all_gather_into_tensor";
    auto arrays = list_of(Array(output, writes, name, "output_tensor"), Array(input, reads, name, "input_tensor"));
    const TensorView to = arrays[0].view();
    const ConstTensorView from = arrays[1].view();
    const CollectiveOptions options{.group = group_of(group, name)};
    return run(
        std::move(arrays), one(output), async_op, [&] { tutti::all_gather_into_tensor(to, from, options); },
        [&] { return async::all_gather_into_tensor(to, from, options); });
}

OptionalWork gather(nb::handle tensor, nb::handle gather_list, nb::handle dst, nb::handle group, bool async_op,
                    nb::handle group_dst) {
    constexpr const char* name = "gather";
    ArrayList outputs(gather_list, writes, name, "gather_list");
    Array input(tensor, reads, name, "tensor");
    const TensorList to = outputs.views();
    const ConstTensorView from = input.view();
    const GatherOptions options{.dst = rank_of(dst, name, "dst"),
                                .group = group_of(group, name),
                                .group_dst = rank_of(group_dst, name, "group_dst")};
    return run(
        joined(std::move(outputs.arrays), std::move(input)), as_list(gather_list), async_op,
        [&] { tutti::gather(from, to, options); }, [&] { return async::gather(from, to, options); });
}

OptionalWork scatter(nb::handle tensor, nb::handle scatter_list, nb::handle src, nb::handle group, bool async_op,
                     nb::handle group_src) {
    constexpr const char* name = "scatter";
    ArrayList inputs(scatter_list, reads, name, "scatter_list");
    Array output(tensor, writes, name, "tensor");
    const ConstTensorList from = inputs.const_views();
    const TensorView to = output.view();
    const ScatterOptions options{.src = rank_of(src, name, "src"),
                                 .group = group_of(group, name),
                                 .group_src = rank_of(group_src, name, "group_src")};
    return run(
        joined(std::move(inputs.arrays), std::move(output)), one(tensor), async_op,
        [&] { tutti::scatter(to, from, options); }, [&] { return async::scatter(to, from, options); });
}

OptionalWork reduce_scatter(nb::handle output, nb::handle input_list, const ReduceOp& op, nb::handle group,
                            bool async_op) {
    constexpr const char* name = "reduce_scatter";
    ArrayList inputs(input_list, reads, name, "input_list");
    Array result(output, writes, name, "output");
    const ConstTensorList from = inputs.const_views();
    const TensorView to = result.view();
    const ReduceScatterOptions options{.op = op, .group = group_of(group, name)};
    return run(
        joined(std::move(inputs.arrays), std::move(result)), one(output), async_op,
        [&] { tutti::reduce_scatter(to, from, options); }, [&] { return async::reduce_scatter(to, from, options); });
}

OptionalWork reduce_scatter_tensor(nb::handle output, nb::handle input, const ReduceOp& op, nb::handle group,
                                   bool async_op) {
    constexpr const char* name = "reduce_scatter_tensor";
    auto arrays = list_of(Array(output, writes, name, "output"), Array(input, reads, name, "input"));
    const TensorView to = arrays[0].view();
    const ConstTensorView from = arrays[1].view();
    const ReduceScatterOptions options{.op = op, .group = group_of(group, name)};
    return run(
        std::move(arrays), one(output), async_op, [&] { tutti::reduce_scatter_tensor(to, from, options); },
        [&] { return async::reduce_scatter_tensor(to, from, options); });
}

std::vector<std::int64_t> splits_of(nb::handle sizes, const char* argument) {
    if (sizes.is_none()) return {};
    try {
        return nb::cast<std::vector<std::int64_t>>(nb::list(nb::borrow(sizes)));
    } catch (const nb::cast_error&) {
    } catch (nb::python_error&) {
    }
    throw_type_error("all_to_all_single", argument, sizes, "a list of sizes, one per rank");
}

AllToAllSingleOptions all_to_all_options(nb::handle output_splits, nb::handle input_splits, nb::handle group) {
    return {.output_split_sizes = splits_of(output_splits, "output_split_sizes"),
            .input_split_sizes = splits_of(input_splits, "input_split_sizes"),
            .group = group_of(group, "all_to_all_single")};
}

OptionalWork all_to_all_single(nb::handle output, nb::handle input, nb::handle output_splits, nb::handle input_splits,
                               nb::handle group, bool async_op) {
    constexpr const char* name = "all_to_all_single";
    auto arrays = list_of(Array(output, writes, name, "output"), Array(input, reads, name, "input"));
    const TensorView to = arrays[0].view();
    const ConstTensorView from = arrays[1].view();
    const AllToAllSingleOptions options = all_to_all_options(output_splits, input_splits, group);
    return run(
        std::move(arrays), one(output), async_op, [&] { tutti::all_to_all_single(to, from, options); },
        [&] { return async::all_to_all_single(to, from, options); });
}

OptionalWork all_to_all(nb::handle output_list, nb::handle input_list, nb::handle group, bool async_op) {
    constexpr const char* name = "all_to_all";
    ArrayList outputs(output_list, writes, name, "output_tensor_list");
    ArrayList inputs(input_list, reads, name, "input_tensor_list");
    const TensorList to = outputs.views();
    const ConstTensorList from = inputs.const_views();
    const CollectiveOptions options{.group = group_of(group, name)};
    std::vector<Array> arrays = std::move(outputs.arrays);
    for (Array& input : inputs.arrays) arrays.push_back(std::move(input));
    return run(
        std::move(arrays), as_list(output_list), async_op, [&] { tutti::all_to_all(to, from, options); },
        [&] { return async::all_to_all(to, from, options); });
}

OptionalWork barrier(nb::handle group, bool async_op, nb::handle device_ids) {
    BarrierOptions options{.group = group_of(group, "barrier")};
    if (!device_ids.is_none()) {
        if (!PyList_Check(device_ids.ptr()))
            throw_type_error("barrier", "device_ids", device_ids, "a list of integers");
        for (const nb::handle id : device_ids) options.device_ids.push_back(*rank_of(id, "barrier", "device_ids"));
    }
    return run(
        {}, nb::list(), async_op, [&] { tutti::barrier(options); }, [&] { return async::barrier(options); });
}

void monitored_barrier(nb::handle group, nb::handle timeout, bool wait_all_ranks) {
    constexpr const char* name = "monitored_barrier";
    const MonitoredBarrierOptions options{
        .group = group_of(group, name), .timeout = timeout_of(timeout, name), .wait_all_ranks = wait_all_ranks};
    without_gil([&] { tutti::monitored_barrier(options); });
}

OptionalWork all_reduce_coalesced(nb::handle tensors, const ReduceOp& op, nb::handle group, bool async_op) {
    constexpr const char* name = "all_reduce_coalesced";
    ArrayList list(tensors, writes, name, "tensors");
    const TensorList views = list.views();
    const AllReduceOptions options{.op = op, .group = group_of(group, name)};
    return run(
        std::move(list.arrays), as_list(tensors), async_op, [&] { tutti::all_reduce_coalesced(views, options); },
        [&] { return async::all_reduce_coalesced(views, options); });
}

OptionalWork all_gather_coalesced(nb::handle output_lists, nb::handle input_list, nb::handle group, bool async_op) {
    constexpr const char* name = "all_gather_coalesced";
    std::vector<Array> arrays;
    std::vector<TensorList> to;
    nb::list results;
    if (!PyList_Check(output_lists.ptr())) {
        throw_type_error(name, "output_tensor_lists", output_lists, "a list of lists of arrays");
    }
    for (const nb::handle output_list : output_lists) {
        ArrayList outputs(output_list, writes, name, "output_tensor_lists");
        to.push_back(outputs.views());
        for (Array& output : outputs.arrays) arrays.push_back(std::move(output));
        for (const nb::handle output : output_list) results.append(output);
    }
    ArrayList inputs(input_list, reads, name, "input_tensor_list");
    const ConstTensorList from = inputs.const_views();
    for (Array& input : inputs.arrays) arrays.push_back(std::move(input));
    const CollectiveOptions options{.group = group_of(group, name)};
    return run(
        std::move(arrays), results, async_op, [&] { tutti::all_gather_coalesced(to, from, options); },
        [&] { return async::all_gather_coalesced(to, from, options); });
}

void bind_ops(nb::module_& m) {
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
                                   "BXOR, and PREMUL_SUM, which _make_nccl_premul_sum(factor) makes.");
    op.def(nb::init<ReduceOp::Kind>(), nb::arg("op") = ReduceOp::Kind::sum)
        .def_prop_ro("op", &ReduceOp::kind)
        .def_prop_ro("factor", &ReduceOp::factor)
        .def(
            "__eq__",
            [](const ReduceOp& self, nb::handle other) {
                return nb::isinstance<ReduceOp>(other) ? self == nb::cast<ReduceOp>(other)
                                                       : nb::int_(static_cast<int>(self.kind())).equal(other);
            },
            nb::sig("def __eq__(self, other: object, /) -> bool"))
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

}  // namespace

void bind_collectives(nb::module_& m) {
    bind_ops(m);
    m.def("broadcast", &broadcast);
    m.def("all_reduce", &all_reduce);
    m.def("reduce", &reduce);
    m.def("all_gather", &all_gather);
    m.def("all_gather_into_tensor", &all_gather_into_tensor);
    m.def("gather", &gather);
    m.def("scatter", &scatter);
    m.def("reduce_scatter", &reduce_scatter);
    m.def("reduce_scatter_tensor", &reduce_scatter_tensor);
    m.def("all_to_all_single", &all_to_all_single);
    m.def("all_to_all", &all_to_all);
    m.def("barrier", &barrier);
    m.def("monitored_barrier", &monitored_barrier);
    m.def("all_reduce_coalesced", &all_reduce_coalesced);
    m.def("all_gather_coalesced", &all_gather_coalesced);
}

}  // namespace tutti::python
