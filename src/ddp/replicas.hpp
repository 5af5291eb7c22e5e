// Checks that the ranks' copies of a model agree, and makes the copies equal.
//
// Threads: one at a time for each group, since the functions are collectives.
#pragma once

#include <tutti/ddp.hpp>

#include <string>
#include <vector>

namespace tutti::ddp {

/// The start of every message of DDP: the class, and the module if it has a name.
std::string title(const DistributedDataParallelOptions& options, const char* method = nullptr);

/// The first fault in this rank's arguments, as a message; empty: none. Does not check the group.
std::string fault_of(const std::vector<NamedParameter>& parameters, const DistributedDataParallelOptions& options);

/// All ranks of the group call it. If `fault` is not empty, throws InvalidArgument with it here, and CollectiveMismatch
/// on the other ranks; throws CollectiveMismatch on all ranks if their arguments differ.
void compare_replicas(const ProcessGroup& group, const std::vector<NamedParameter>& parameters,
                      const DistributedDataParallelOptions& options, const std::string& fault);

/// Copies rank 0's tensors to all ranks. Short tensors share messages.
void broadcast_from_first(const ProcessGroup& group, const std::vector<TensorView>& tensors);

}  // namespace tutti::ddp
