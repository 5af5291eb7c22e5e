// What the ranks' copies of a model must have alike, and how they become equal.
//
// Threads: one at a time for each group: these are collectives.
#pragma once

#include <tutti/ddp.hpp>

#include <string>
#include <vector>

namespace tutti::ddp {

/// What every message of this room begins with: the class, and the module where it has a name.
std::string title(const DistributedDataParallelOptions& options, const char* method = nullptr);

/// What is wrong with this rank's arguments, as a message; empty: nothing. The group is not looked at.
std::string fault_of(const std::vector<NamedParameter>& parameters, const DistributedDataParallelOptions& options);

/// All ranks of the group call it. Throws InvalidArgument with `fault` if it is not empty, and then CollectiveMismatch
/// on the others; CollectiveMismatch on all where they do not mean the same.
void compare_replicas(const ProcessGroup& group, const std::vector<NamedParameter>& parameters,
                      const DistributedDataParallelOptions& options, const std::string& fault);

/// All ranks' tensors become rank 0's. Short ones travel together.
void broadcast_from_first(const ProcessGroup& group, const std::vector<TensorView>& tensors);

}  // namespace tutti::ddp
