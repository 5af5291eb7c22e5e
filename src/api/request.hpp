// Building operations from the arguments of the public functions: checks, packing, counts, fingerprints.
#pragma once

#include "group/group.hpp"

#include <tutti/distributed.hpp>

#include <memory>
#include <utility>

namespace tutti::api {

using detail::Group;
using detail::Operation;

/// The default group, or null. Every call needs it, so it is quicker than default_group(). Valid until this thread's
/// next call.
const std::shared_ptr<Group>& default_impl() noexcept;
/// The group that an option names; throws when there is none, or this rank is not in it.
std::shared_ptr<Group> group_of(const ProcessGroup& group, const char* operation);
/// The same for short calls, which do not hold it: an atomic reference count would wait until all earlier stores are
/// visible to the other CPUs. Null where there is none.
inline Group* group_unheld(const ProcessGroup& group) noexcept {
    if (group) return group.impl().get();
    return group.is_non_member() ? nullptr : default_impl().get();
}
/// The root that a pair of options names, as a rank of the group; `fallback` (a global rank) where neither is given,
/// -1: InvalidArgument.
int root_of(const char* operation, std::optional<int> global, std::optional<int> in_group, const Group& group,
            int fallback);

/// The rank in the group of a global rank, or of one in the group; throws where it has none. `what`: "root".
int rank_in(const char* operation, const char* what, std::optional<int> global, std::optional<int> in_group,
            const Group& group);

/// Throws where no backend of the group serves the tensor's device.
void check_device(const char* operation, const char* argument, const ConstTensorView& view, const Group& group);

/// An operation that has not begun: it has not read its inputs.
using Prepared = std::shared_ptr<Operation>;

/// From the first byte of a tensor to the one after its last. Bytes in between may belong to others.
using Range = std::pair<const std::byte*, const std::byte*>;
Range range_of(const ConstTensorView& view);

Prepared all_reduce(TensorView tensor, const AllReduceOptions& options);
Prepared broadcast(TensorView tensor, const BroadcastOptions& options);
Prepared reduce(TensorView tensor, const ReduceOptions& options);
Prepared all_gather(const TensorList& outputs, ConstTensorView tensor, const CollectiveOptions& options);
Prepared all_gather_into_tensor(TensorView output, ConstTensorView input, const CollectiveOptions& options);
Prepared gather(ConstTensorView tensor, const TensorList& outputs, const GatherOptions& options);
Prepared scatter(TensorView tensor, const ConstTensorList& inputs, const ScatterOptions& options);
Prepared reduce_scatter(TensorView output, const ConstTensorList& inputs, const ReduceScatterOptions& options);
Prepared reduce_scatter_tensor(TensorView output, ConstTensorView input, const ReduceScatterOptions& options);
Prepared all_gather_into_tensor_uneven(TensorView output, ConstTensorView input, const AllGatherUnevenOptions& options);
Prepared reduce_scatter_tensor_uneven(TensorView output, ConstTensorView input,
                                      const ReduceScatterUnevenOptions& options);
Prepared all_to_all_single(TensorView output, ConstTensorView input, const AllToAllSingleOptions& options);
Prepared all_to_all_v(TensorView output, ConstTensorView input, const AllToAllVOptions& options);
Prepared all_to_all(const TensorList& outputs, const ConstTensorList& inputs, const CollectiveOptions& options);
/// The device of the barrier, if its options say so and the group serves devices. Throws InvalidArgument.
std::optional<Device> barrier_device(const BarrierOptions& options, const detail::Group& group);
Prepared barrier(const BarrierOptions& options);
Prepared send(ConstTensorView tensor, int dst, const SendOptions& options);
Prepared recv(TensorView tensor, const RecvOptions& options);

}  // namespace tutti::api
