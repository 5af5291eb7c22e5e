// The properties that must agree between the ranks' copies of a model, and how the copies become equal.
//
// Threads: one at a time for each group: these are collectives.
#pragma once

#include <tutti/ddp.hpp>

#include <string>
#include <vector>

namespace tutti::ddp {

/// The start of every message of this room: the class, and the module where it has a name.
std::string title(const DistributedDataParallelOptions& options, const char* method = nullptr);

/// The fault in this rank's arguments, as a message; empty: none. Does not look at the group.
std::string fault_of(const std::vector<NamedParameter>& parameters, const DistributedDataParallelOptions& options);

/// All ranks of the group call it. Throws InvalidArgument with `fault` if it is not empty, and then CollectiveMismatch
/// on the others; CollectiveMismatch on all where they do not mean the same.
void compare_replicas(const ProcessGroup& group, const std::vector<NamedParameter>& parameters,
                      const DistributedDataParallelOptions& options, const std::string& fault);

/// All ranks' tensors become rank 0's. Short ones travel together.
void broadcast_from_first(const ProcessGroup& group, const std::vector<TensorView>& tensors);

}  // namespace tutti::ddp
