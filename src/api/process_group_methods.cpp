// The functions of distributed.hpp as members of the group that they are about.
#include <tutti/coalescing.hpp>
#include <tutti/distributed.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>

namespace tutti {
namespace {

template <class Options>
Options here(const ProcessGroup& group, Options options, const char* name) {
    if (!group && !group.is_non_member())
        throw InvalidArgument(fmt::format("ProcessGroup.{}: an empty handle: expected a group", name));
    const bool named = options.group || options.group.is_non_member();
    if (named && options.group != group) {
        throw InvalidArgument(fmt::format("ProcessGroup.{}: options name another group{}: expected none, or this one",
                                          name, options.group ? ", \"" + options.group.name() + '"' : std::string()));
    }
    options.group = group;
    return options;
}

}  // namespace

void ProcessGroup::broadcast(TensorView tensor, const BroadcastOptions& options) const {
    tutti::broadcast(tensor, here(*this, options, "broadcast"));
}
void ProcessGroup::all_reduce(TensorView tensor) const {
    all_reduce(tensor, AllReduceOptions{});
}
void ProcessGroup::all_reduce(TensorView tensor, const AllReduceOptions& options) const {
    tutti::all_reduce(tensor, here(*this, options, "all_reduce"));
}
void ProcessGroup::reduce(TensorView tensor, const ReduceOptions& options) const {
    tutti::reduce(tensor, here(*this, options, "reduce"));
}
void ProcessGroup::all_gather(const std::vector<TensorView>& output_list, ConstTensorView tensor) const {
    all_gather(output_list, tensor, CollectiveOptions{});
}
void ProcessGroup::all_gather(const std::vector<TensorView>& output_list, ConstTensorView tensor,
                              const CollectiveOptions& options) const {
    tutti::all_gather(output_list, tensor, here(*this, options, "all_gather"));
}
void ProcessGroup::all_gather_into_tensor(TensorView output, ConstTensorView input) const {
    all_gather_into_tensor(output, input, CollectiveOptions{});
}
void ProcessGroup::all_gather_into_tensor(TensorView output, ConstTensorView input,
                                          const CollectiveOptions& options) const {
    tutti::all_gather_into_tensor(output, input, here(*this, options, "all_gather_into_tensor"));
}
void ProcessGroup::gather(ConstTensorView tensor, const std::vector<TensorView>& gather_list) const {
    gather(tensor, gather_list, GatherOptions{});
}
void ProcessGroup::gather(ConstTensorView tensor, const std::vector<TensorView>& gather_list,
                          const GatherOptions& options) const {
    tutti::gather(tensor, gather_list, here(*this, options, "gather"));
}
void ProcessGroup::scatter(TensorView tensor, const std::vector<ConstTensorView>& scatter_list) const {
    scatter(tensor, scatter_list, ScatterOptions{});
}
void ProcessGroup::scatter(TensorView tensor, const std::vector<ConstTensorView>& scatter_list,
                           const ScatterOptions& options) const {
    tutti::scatter(tensor, scatter_list, here(*this, options, "scatter"));
}
void ProcessGroup::reduce_scatter(TensorView output, const std::vector<ConstTensorView>& input_list) const {
    reduce_scatter(output, input_list, AllReduceOptions{});
}
void ProcessGroup::reduce_scatter(TensorView output, const std::vector<ConstTensorView>& input_list,
                                  const AllReduceOptions& options) const {
    tutti::reduce_scatter(output, input_list, here(*this, options, "reduce_scatter"));
}
void ProcessGroup::reduce_scatter_tensor(TensorView output, ConstTensorView input) const {
    reduce_scatter_tensor(output, input, AllReduceOptions{});
}
void ProcessGroup::reduce_scatter_tensor(TensorView output, ConstTensorView input,
                                         const AllReduceOptions& options) const {
    tutti::reduce_scatter_tensor(output, input, here(*this, options, "reduce_scatter_tensor"));
}
void ProcessGroup::all_to_all_single(TensorView output, ConstTensorView input) const {
    all_to_all_single(output, input, AllToAllSingleOptions{});
}
void ProcessGroup::all_to_all_single(TensorView output, ConstTensorView input,
                                     const AllToAllSingleOptions& options) const {
    tutti::all_to_all_single(output, input, here(*this, options, "all_to_all_single"));
}
void ProcessGroup::all_to_all(const std::vector<TensorView>& output_list,
                              const std::vector<ConstTensorView>& input_list) const {
    all_to_all(output_list, input_list, CollectiveOptions{});
}
void ProcessGroup::all_to_all(const std::vector<TensorView>& output_list,
                              const std::vector<ConstTensorView>& input_list, const CollectiveOptions& options) const {
    tutti::all_to_all(output_list, input_list, here(*this, options, "all_to_all"));
}
void ProcessGroup::all_gather_into_tensor_uneven(TensorView output, ConstTensorView input) const {
    all_gather_into_tensor_uneven(output, input, AllGatherUnevenOptions{});
}
void ProcessGroup::all_gather_into_tensor_uneven(TensorView output, ConstTensorView input,
                                                 const AllGatherUnevenOptions& options) const {
    tutti::all_gather_into_tensor_uneven(output, input, here(*this, options, "all_gather_into_tensor_uneven"));
}
void ProcessGroup::reduce_scatter_tensor_uneven(TensorView output, ConstTensorView input) const {
    reduce_scatter_tensor_uneven(output, input, ReduceScatterUnevenOptions{});
}
void ProcessGroup::reduce_scatter_tensor_uneven(TensorView output, ConstTensorView input,
                                                const ReduceScatterUnevenOptions& options) const {
    tutti::reduce_scatter_tensor_uneven(output, input, here(*this, options, "reduce_scatter_tensor_uneven"));
}
void ProcessGroup::all_to_all_v(TensorView output, ConstTensorView input) const {
    all_to_all_v(output, input, AllToAllVOptions{});
}
void ProcessGroup::all_to_all_v(TensorView output, ConstTensorView input, const AllToAllVOptions& options) const {
    tutti::all_to_all_v(output, input, here(*this, options, "all_to_all_v"));
}
void ProcessGroup::barrier() const {
    barrier(BarrierOptions{});
}
void ProcessGroup::barrier(const BarrierOptions& options) const {
    tutti::barrier(here(*this, options, "barrier"));
}
void ProcessGroup::monitored_barrier() const {
    monitored_barrier(MonitoredBarrierOptions{});
}
void ProcessGroup::monitored_barrier(const MonitoredBarrierOptions& options) const {
    tutti::monitored_barrier(here(*this, options, "monitored_barrier"));
}
void ProcessGroup::send(ConstTensorView tensor, int dst) const {
    send(tensor, dst, SendOptions{});
}
void ProcessGroup::send(ConstTensorView tensor, int dst, const SendOptions& options) const {
    tutti::send(tensor, dst, here(*this, options, "send"));
}
int ProcessGroup::recv(TensorView tensor) const {
    return recv(tensor, RecvOptions{});
}
int ProcessGroup::recv(TensorView tensor, const RecvOptions& options) const {
    return tutti::recv(tensor, here(*this, options, "recv"));
}
Work ProcessGroup::isend(ConstTensorView tensor, int dst) const {
    return isend(tensor, dst, SendOptions{});
}
Work ProcessGroup::isend(ConstTensorView tensor, int dst, const SendOptions& options) const {
    return tutti::isend(tensor, dst, here(*this, options, "isend"));
}
Work ProcessGroup::irecv(TensorView tensor) const {
    return irecv(tensor, RecvOptions{});
}
Work ProcessGroup::irecv(TensorView tensor, const RecvOptions& options) const {
    return tutti::irecv(tensor, here(*this, options, "irecv"));
}
Work ProcessGroup::allreduce(const std::vector<TensorView>& tensors) const {
    return allreduce(tensors, AllReduceOptions{});
}
Work ProcessGroup::allreduce(const std::vector<TensorView>& tensors, const AllReduceOptions& options) const {
    return async::all_reduce_coalesced(tensors, here(*this, options, "allreduce"));
}

}  // namespace tutti
