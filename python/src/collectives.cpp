// The collectives on arrays, and their plans. Arguments are positional here; tutti.distributed gives them their names
// and defaults.
#include "parts.hpp"
#include "plans.hpp"

#include <tutti/coalescing.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

namespace tutti::python {
namespace {

std::vector<Array> joined(std::vector<Array> list, Array array) {
    list.push_back(std::move(array));
    return list;
}
std::vector<Array> joined(std::vector<Array> list, std::vector<Array> more) {
    for (Array& array : more) list.push_back(std::move(array));
    return list;
}
nb::object as_list(nb::handle list) {
    return list.is_none() ? nb::object(nb::list()) : nb::object(nb::list(nb::borrow(list)));
}

template <class Way>
auto broadcast(Way way, nb::handle tensor, nb::handle src, nb::handle group, nb::handle group_src, nb::handle timeout) {
    const char* name = way.name("plan.broadcast");
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    const BroadcastOptions options{.src = rank_of(src, name, "src"),
                                   .group = group_of(group, name),
                                   .group_src = rank_of(group_src, name, "group_src"),
                                   .timeout = timeout_of(timeout, name)};
    return way(
        std::move(arrays), one(tensor), [&] { tutti::broadcast(view, options); },
        [&] { return async::broadcast(view, options); }, [&] { return plan::broadcast(view, options); });
}

template <class Way>
auto all_reduce(Way way, nb::handle tensor, nb::handle op, nb::handle group, nb::handle timeout) {
    const char* name = way.name("plan.all_reduce");
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    const AllReduceOptions options{
        .op = op_of(op, name), .group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    return way(
        std::move(arrays), one(tensor), [&] { tutti::all_reduce(view, options); },
        [&] { return async::all_reduce(view, options); }, [&] { return plan::all_reduce(view, options); });
}

template <class Way>
auto reduce(Way way, nb::handle tensor, nb::handle dst, nb::handle op, nb::handle group, nb::handle group_dst,
            nb::handle timeout) {
    const char* name = way.name("plan.reduce");
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    const ReduceOptions options{.dst = rank_of(dst, name, "dst"),
                                .op = op_of(op, name),
                                .group = group_of(group, name),
                                .group_dst = rank_of(group_dst, name, "group_dst"),
                                .timeout = timeout_of(timeout, name)};
    return way(
        std::move(arrays), one(tensor), [&] { tutti::reduce(view, options); },
        [&] { return async::reduce(view, options); }, [&] { return plan::reduce(view, options); });
}

template <class Way>
auto all_gather(Way way, nb::handle tensor_list, nb::handle tensor, nb::handle group, nb::handle timeout) {
    const char* name = way.name("plan.all_gather");
    ArrayList outputs(tensor_list, writes, name, "tensor_list");
    Array input(tensor, reads, name, "tensor");
    const TensorList to = outputs.views();
    const ConstTensorView from = input.view();
    const CollectiveOptions options{.group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    return way(
        joined(std::move(outputs.arrays), std::move(input)), as_list(tensor_list),
        [&] { tutti::all_gather(to, from, options); }, [&] { return async::all_gather(to, from, options); },
        [&] { return plan::all_gather(to, from, options); });
}

template <class Way>
auto all_gather_into_tensor(Way way, nb::handle output, nb::handle input, nb::handle group, nb::handle timeout) {
    const char* name = way.name("plan.all_gather_into_tensor");
    auto arrays = list_of(Array(output, writes, name, "output_tensor"), Array(input, reads, name, "input_tensor"));
    const TensorView to = arrays[0].view();
    const ConstTensorView from = arrays[1].view();
    const CollectiveOptions options{.group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    return way(
        std::move(arrays), one(output), [&] { tutti::all_gather_into_tensor(to, from, options); },
        [&] { return async::all_gather_into_tensor(to, from, options); },
        [&] { return plan::all_gather_into_tensor(to, from, options); });
}

template <class Way>
auto gather(Way way, nb::handle tensor, nb::handle gather_list, nb::handle dst, nb::handle group, nb::handle group_dst,
            nb::handle timeout) {
    const char* name = way.name("plan.gather");
    ArrayList outputs(gather_list, writes, name, "gather_list");
    Array input(tensor, reads, name, "tensor");
    const TensorList to = outputs.views();
    const ConstTensorView from = input.view();
    const GatherOptions options{.dst = rank_of(dst, name, "dst"),
                                .group = group_of(group, name),
                                .group_dst = rank_of(group_dst, name, "group_dst"),
                                .timeout = timeout_of(timeout, name)};
    return way(
        joined(std::move(outputs.arrays), std::move(input)), as_list(gather_list),
        [&] { tutti::gather(from, to, options); }, [&] { return async::gather(from, to, options); },
        [&] { return plan::gather(from, to, options); });
}

template <class Way>
auto scatter(Way way, nb::handle tensor, nb::handle scatter_list, nb::handle src, nb::handle group,
             nb::handle group_src, nb::handle timeout) {
    const char* name = way.name("plan.scatter");
    ArrayList inputs(scatter_list, reads, name, "scatter_list");
    Array output(tensor, writes, name, "tensor");
    const ConstTensorList from = inputs.const_views();
    const TensorView to = output.view();
    const ScatterOptions options{.src = rank_of(src, name, "src"),
                                 .group = group_of(group, name),
                                 .group_src = rank_of(group_src, name, "group_src"),
                                 .timeout = timeout_of(timeout, name)};
    return way(
        joined(std::move(inputs.arrays), std::move(output)), one(tensor), [&] { tutti::scatter(to, from, options); },
        [&] { return async::scatter(to, from, options); }, [&] { return plan::scatter(to, from, options); });
}

template <class Way>
auto reduce_scatter(Way way, nb::handle output, nb::handle input_list, nb::handle op, nb::handle group,
                    nb::handle timeout) {
    const char* name = way.name("plan.reduce_scatter");
    ArrayList inputs(input_list, reads, name, "input_list");
    Array result(output, writes, name, "output");
    const ConstTensorList from = inputs.const_views();
    const TensorView to = result.view();
    const ReduceScatterOptions options{
        .op = op_of(op, name), .group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    return way(
        joined(std::move(inputs.arrays), std::move(result)), one(output),
        [&] { tutti::reduce_scatter(to, from, options); }, [&] { return async::reduce_scatter(to, from, options); },
        [&] { return plan::reduce_scatter(to, from, options); });
}

template <class Way>
auto reduce_scatter_tensor(Way way, nb::handle output, nb::handle input, nb::handle op, nb::handle group,
                           nb::handle timeout) {
    const char* name = way.name("plan.reduce_scatter_tensor");
    auto arrays = list_of(Array(output, writes, name, "output"), Array(input, reads, name, "input"));
    const TensorView to = arrays[0].view();
    const ConstTensorView from = arrays[1].view();
    const ReduceScatterOptions options{
        .op = op_of(op, name), .group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    return way(
        std::move(arrays), one(output), [&] { tutti::reduce_scatter_tensor(to, from, options); },
        [&] { return async::reduce_scatter_tensor(to, from, options); },
        [&] { return plan::reduce_scatter_tensor(to, from, options); });
}

std::vector<std::int64_t> splits_of(nb::handle sizes, const char* name, const char* argument) {
    if (sizes.is_none()) return {};
    try {
        return nb::cast<std::vector<std::int64_t>>(nb::list(nb::borrow(sizes)));
    } catch (const nb::cast_error&) {
    } catch (nb::python_error&) {
    }
    throw_type_error(name, argument, sizes, "a list of sizes, one per rank");
}

template <class Way>
auto all_gather_into_tensor_uneven(Way way, nb::handle output, nb::handle input, nb::handle output_splits,
                                   nb::handle group, nb::handle timeout) {
    const char* name = way.name("plan.all_gather_into_tensor_uneven");
    auto arrays = list_of(Array(output, writes, name, "output"), Array(input, reads, name, "input"));
    const TensorView to = arrays[0].view();
    const ConstTensorView from = arrays[1].view();
    const AllGatherUnevenOptions options{.output_split_sizes = splits_of(output_splits, name, "output_split_sizes"),
                                         .group = group_of(group, name),
                                         .timeout = timeout_of(timeout, name)};
    return way(
        std::move(arrays), one(output), [&] { tutti::all_gather_into_tensor_uneven(to, from, options); },
        [&] { return async::all_gather_into_tensor_uneven(to, from, options); },
        [&] { return plan::all_gather_into_tensor_uneven(to, from, options); });
}

template <class Way>
auto reduce_scatter_tensor_uneven(Way way, nb::handle output, nb::handle input, nb::handle input_splits, nb::handle op,
                                  nb::handle group, nb::handle timeout) {
    const char* name = way.name("plan.reduce_scatter_tensor_uneven");
    auto arrays = list_of(Array(output, writes, name, "output"), Array(input, reads, name, "input"));
    const TensorView to = arrays[0].view();
    const ConstTensorView from = arrays[1].view();
    const ReduceScatterUnevenOptions options{.input_split_sizes = splits_of(input_splits, name, "input_split_sizes"),
                                             .op = op_of(op, name),
                                             .group = group_of(group, name),
                                             .timeout = timeout_of(timeout, name)};
    return way(
        std::move(arrays), one(output), [&] { tutti::reduce_scatter_tensor_uneven(to, from, options); },
        [&] { return async::reduce_scatter_tensor_uneven(to, from, options); },
        [&] { return plan::reduce_scatter_tensor_uneven(to, from, options); });
}

template <class Way>
auto all_to_all_single(Way way, nb::handle output, nb::handle input, nb::handle output_splits, nb::handle input_splits,
                       nb::handle group, nb::handle timeout) {
    const char* name = way.name("plan.all_to_all_single");
    auto arrays = list_of(Array(output, writes, name, "output"), Array(input, reads, name, "input"));
    const TensorView to = arrays[0].view();
    const ConstTensorView from = arrays[1].view();
    const AllToAllSingleOptions options{.output_split_sizes = splits_of(output_splits, name, "output_split_sizes"),
                                        .input_split_sizes = splits_of(input_splits, name, "input_split_sizes"),
                                        .group = group_of(group, name),
                                        .timeout = timeout_of(timeout, name)};
    return way(
        std::move(arrays), one(output), [&] { tutti::all_to_all_single(to, from, options); },
        [&] { return async::all_to_all_single(to, from, options); },
        [&] { return plan::all_to_all_single(to, from, options); });
}

template <class Way>
auto all_to_all_v(Way way, nb::handle output, nb::handle input, nb::handle send_counts, nb::handle send_offsets,
                  nb::handle receive_counts, nb::handle receive_offsets, nb::handle group, nb::handle timeout) {
    const char* name = way.name("plan.all_to_all_v");
    auto arrays = list_of(Array(output, writes, name, "output"), Array(input, reads, name, "input"));
    const TensorView to = arrays[0].view();
    const ConstTensorView from = arrays[1].view();
    const AllToAllVOptions options{.send_counts = splits_of(send_counts, name, "send_counts"),
                                   .send_offsets = splits_of(send_offsets, name, "send_offsets"),
                                   .receive_counts = splits_of(receive_counts, name, "receive_counts"),
                                   .receive_offsets = splits_of(receive_offsets, name, "receive_offsets"),
                                   .group = group_of(group, name),
                                   .timeout = timeout_of(timeout, name)};
    return way(
        std::move(arrays), one(output), [&] { tutti::all_to_all_v(to, from, options); },
        [&] { return async::all_to_all_v(to, from, options); }, [&] { return plan::all_to_all_v(to, from, options); });
}

template <class Way>
auto all_to_all(Way way, nb::handle output_list, nb::handle input_list, nb::handle group, nb::handle timeout) {
    const char* name = way.name("plan.all_to_all");
    ArrayList outputs(output_list, writes, name, "output_tensor_list");
    ArrayList inputs(input_list, reads, name, "input_tensor_list");
    const TensorList to = outputs.views();
    const ConstTensorList from = inputs.const_views();
    const CollectiveOptions options{.group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    return way(
        joined(std::move(outputs.arrays), std::move(inputs.arrays)), as_list(output_list),
        [&] { tutti::all_to_all(to, from, options); }, [&] { return async::all_to_all(to, from, options); },
        [&] { return plan::all_to_all(to, from, options); });
}

bool is_for_devices(const ProcessGroup& group) {
    if (group.is_non_member() || !(group || is_initialized())) return false;
    return (group ? group : default_group()).backend() != "native";
}

template <class Way>
auto barrier(Way way, nb::handle group, nb::handle device_ids, nb::handle timeout) {
    const char* name = way.name("plan.barrier");
    BarrierOptions options{.group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    if (!device_ids.is_none()) {
        if (!PyList_Check(device_ids.ptr())) throw_type_error(name, "device_ids", device_ids, "a list of integers");
        for (const nb::handle id : device_ids) {
            if (id.is_none()) throw_type_error(name, "device_ids", id, "a list of integers");
            options.device_ids.push_back(*rank_of(id, name, "device_ids"));
        }
    }
    // In a group for host memory it waits for no stream.
    std::optional<InStream> in_stream;
    if (is_for_devices(options.group)) in_stream.emplace(InStream::Ambient{});
    return way(
        {}, nb::list(), [&] { tutti::barrier(options); }, [&] { return async::barrier(options); },
        [&] { return plan::barrier(options); });
}

void monitored_barrier(nb::handle group, nb::handle timeout, nb::handle wait_all_ranks) {
    constexpr const char* name = "monitored_barrier";
    const MonitoredBarrierOptions options{.group = group_of(group, name),
                                          .timeout = timeout_of(timeout, name),
                                          .wait_all_ranks = flag_of(wait_all_ranks, name, "wait_all_ranks")};
    without_gil([&] { tutti::monitored_barrier(options); });
}

// ---- Several tensors, one launch ----------------------------------------------------------------------------------

template <class Blocking, class Async>
OptionalWork run(std::vector<Array> arrays, nb::object outputs, Now way, Blocking blocking, Async asynchronous) {
    return way(std::move(arrays), std::move(outputs), blocking, asynchronous, [] {});
}

OptionalWork all_reduce_coalesced(nb::handle tensors, nb::handle op, nb::handle group, nb::handle async_op,
                                  nb::handle timeout) {
    constexpr const char* name = "all_reduce_coalesced";
    ArrayList list(tensors, writes, name, "tensors");
    const TensorList views = list.views();
    const AllReduceOptions options{
        .op = op_of(op, name), .group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    return run(
        std::move(list.arrays), as_list(tensors), now(async_op, name),
        [&] { tutti::all_reduce_coalesced(views, options); },
        [&] { return async::all_reduce_coalesced(views, options); });
}

OptionalWork all_gather_coalesced(nb::handle output_lists, nb::handle input_list, nb::handle group, nb::handle async_op,
                                  nb::handle timeout) {
    constexpr const char* name = "all_gather_coalesced";
    std::vector<Array> arrays;
    std::vector<TensorList> to;
    nb::list results;
    if (!PyList_Check(output_lists.ptr())) {
        throw_type_error(name, "output_tensor_lists", output_lists, "a list of lists of arrays");
    }
    for (const nb::handle output_list : output_lists) {
        const auto argument = fmt::format("output_tensor_lists[{}]", to.size());
        if (output_list.is_none()) throw_type_error(name, argument.c_str(), output_list, "a list of arrays");
        ArrayList outputs(output_list, writes, name, argument.c_str());
        to.push_back(outputs.views());
        arrays = joined(std::move(arrays), std::move(outputs.arrays));
        for (const nb::handle output : output_list) results.append(output);
    }
    ArrayList inputs(input_list, reads, name, "input_tensor_list");
    const ConstTensorList from = inputs.const_views();
    const CollectiveOptions options{.group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    return run(
        joined(std::move(arrays), std::move(inputs.arrays)), results, now(async_op, name),
        [&] { tutti::all_gather_coalesced(to, from, options); },
        [&] { return async::all_gather_coalesced(to, from, options); });
}

OptionalWork all_gather_into_tensor_coalesced(nb::handle output_list, nb::handle input_list, nb::handle group,
                                              nb::handle async_op, nb::handle timeout) {
    constexpr const char* name = "all_gather_into_tensor_coalesced";
    ArrayList outputs(output_list, writes, name, "output_tensor_list");
    ArrayList inputs(input_list, reads, name, "input_tensor_list");
    const TensorList to = outputs.views();
    const ConstTensorList from = inputs.const_views();
    const CollectiveOptions options{.group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    return run(
        joined(std::move(outputs.arrays), std::move(inputs.arrays)), as_list(output_list), now(async_op, name),
        [&] { tutti::all_gather_into_tensor_coalesced(to, from, options); },
        [&] { return async::all_gather_into_tensor_coalesced(to, from, options); });
}

OptionalWork reduce_scatter_tensor_coalesced(nb::handle output_list, nb::handle input_list, nb::handle op,
                                             nb::handle group, nb::handle async_op, nb::handle timeout) {
    constexpr const char* name = "reduce_scatter_tensor_coalesced";
    ArrayList outputs(output_list, writes, name, "output_tensor_list");
    ArrayList inputs(input_list, reads, name, "input_tensor_list");
    const TensorList to = outputs.views();
    const ConstTensorList from = inputs.const_views();
    const ReduceScatterOptions options{
        .op = op_of(op, name), .group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    return run(
        joined(std::move(outputs.arrays), std::move(inputs.arrays)), as_list(output_list), now(async_op, name),
        [&] { tutti::reduce_scatter_tensor_coalesced(to, from, options); },
        [&] { return async::reduce_scatter_tensor_coalesced(to, from, options); });
}

void bind_calls(nb::module_& m) {
    using H = nb::handle;
    m.def("broadcast", [](H tensor, H src, H group, H async_op, H group_src, H timeout) {
        return broadcast(now(async_op, "broadcast"), tensor, src, group, group_src, timeout);
    });
    m.def("all_reduce", [](H tensor, H op, H group, H async_op, H timeout) {
        return all_reduce(now(async_op, "all_reduce"), tensor, op, group, timeout);
    });
    m.def("reduce", [](H tensor, H dst, H op, H group, H async_op, H group_dst, H timeout) {
        return reduce(now(async_op, "reduce"), tensor, dst, op, group, group_dst, timeout);
    });
    m.def("all_gather", [](H tensor_list, H tensor, H group, H async_op, H timeout) {
        return all_gather(now(async_op, "all_gather"), tensor_list, tensor, group, timeout);
    });
    m.def("all_gather_into_tensor", [](H output, H input, H group, H async_op, H timeout) {
        return all_gather_into_tensor(now(async_op, "all_gather_into_tensor"), output, input, group, timeout);
    });
    m.def("gather", [](H tensor, H gather_list, H dst, H group, H async_op, H group_dst, H timeout) {
        return gather(now(async_op, "gather"), tensor, gather_list, dst, group, group_dst, timeout);
    });
    m.def("scatter", [](H tensor, H scatter_list, H src, H group, H async_op, H group_src, H timeout) {
        return scatter(now(async_op, "scatter"), tensor, scatter_list, src, group, group_src, timeout);
    });
    m.def("reduce_scatter", [](H output, H input_list, H op, H group, H async_op, H timeout) {
        return reduce_scatter(now(async_op, "reduce_scatter"), output, input_list, op, group, timeout);
    });
    m.def("reduce_scatter_tensor", [](H output, H input, H op, H group, H async_op, H timeout) {
        return reduce_scatter_tensor(now(async_op, "reduce_scatter_tensor"), output, input, op, group, timeout);
    });
    m.def("all_gather_into_tensor_uneven", [](H output, H input, H output_splits, H group, H async_op, H timeout) {
        return all_gather_into_tensor_uneven(now(async_op, "all_gather_into_tensor_uneven"), output, input,
                                             output_splits, group, timeout);
    });
    m.def("reduce_scatter_tensor_uneven", [](H output, H input, H input_splits, H op, H group, H async_op, H timeout) {
        return reduce_scatter_tensor_uneven(now(async_op, "reduce_scatter_tensor_uneven"), output, input, input_splits,
                                            op, group, timeout);
    });
    m.def("all_to_all_single", [](H output, H input, H output_splits, H input_splits, H group, H async_op, H timeout) {
        return all_to_all_single(now(async_op, "all_to_all_single"), output, input, output_splits, input_splits, group,
                                 timeout);
    });
    m.def("all_to_all_v", [](H output, H input, H send_counts, H send_offsets, H receive_counts, H receive_offsets,
                             H group, H async_op, H timeout) {
        return all_to_all_v(now(async_op, "all_to_all_v"), output, input, send_counts, send_offsets, receive_counts,
                            receive_offsets, group, timeout);
    });
    m.def("all_to_all", [](H output_list, H input_list, H group, H async_op, H timeout) {
        return all_to_all(now(async_op, "all_to_all"), output_list, input_list, group, timeout);
    });
    m.def("barrier", [](H group, H async_op, H device_ids, H timeout) {
        return barrier(now(async_op, "barrier"), group, device_ids, timeout);
    });
    m.def("monitored_barrier", &monitored_barrier);
    m.def("all_reduce_coalesced", &all_reduce_coalesced);
    m.def("all_gather_coalesced", &all_gather_coalesced);
    m.def("all_gather_into_tensor_coalesced", &all_gather_into_tensor_coalesced);
    m.def("reduce_scatter_tensor_coalesced", &reduce_scatter_tensor_coalesced);
}

void bind_plans_of_calls(nb::module_& m) {
    m.def("plan_broadcast", later(&broadcast<Later>));
    m.def("plan_all_reduce", later(&all_reduce<Later>));
    m.def("plan_reduce", later(&reduce<Later>));
    m.def("plan_all_gather", later(&all_gather<Later>));
    m.def("plan_all_gather_into_tensor", later(&all_gather_into_tensor<Later>));
    m.def("plan_gather", later(&gather<Later>));
    m.def("plan_scatter", later(&scatter<Later>));
    m.def("plan_reduce_scatter", later(&reduce_scatter<Later>));
    m.def("plan_reduce_scatter_tensor", later(&reduce_scatter_tensor<Later>));
    m.def("plan_all_gather_into_tensor_uneven", later(&all_gather_into_tensor_uneven<Later>));
    m.def("plan_reduce_scatter_tensor_uneven", later(&reduce_scatter_tensor_uneven<Later>));
    m.def("plan_all_to_all_single", later(&all_to_all_single<Later>));
    m.def("plan_all_to_all", later(&all_to_all<Later>));
    m.def("plan_all_to_all_v", later(&all_to_all_v<Later>));
    m.def("plan_barrier", later(&barrier<Later>));
}

}  // namespace

void bind_collectives(nb::module_& m) {
    bind_calls(m);
    bind_plans_of_calls(m);
}

}  // namespace tutti::python
