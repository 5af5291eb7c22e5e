// Work that goes on after a call has returned: joins and operations of communicators that do not block. A thread each.
//
// When the process ends, its communicators that have such work are given up, so that it ends within seconds.
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace tutti::nccl_library {

class Communicator;

/// `communicators` have a call under way (ncclInProgress) until `work` has ended. `work` throws nothing: it tells its
/// communicators. Throws Failure where there is no thread for it.
void run_in_background(std::vector<std::shared_ptr<Communicator>> communicators, std::function<void()> work);

}  // namespace tutti::nccl_library
