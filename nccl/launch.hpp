// Launches: what a group call (or a call outside of one) carries out together, of one communicator or several.
//
// In streams of a driver each communicator's operations run in the order of the first stream that they were given; the
// others of its streams wait there. Without a driver they have run when launch() returns, or, of communicators that do
// not block, when ncclCommGetAsyncError no longer says ncclInProgress. What streams hold that are being captured into a
// graph runs whenever the graph does; the program orders it with what else runs on the communicator then.
//
// Threads: any.
#pragma once

#include "communicator.hpp"
#include "operations.hpp"

#include <memory>
#include <vector>

namespace tutti::nccl_library {

/// One communicator's operations of a launch, in the order of the calls.
struct Batch {
    std::shared_ptr<Communicator> communicator;
    std::vector<Operation> operations;
};

/// ncclSuccess or ncclInProgress; throws the first failure of operations that it has waited for.
ncclResult_t launch(std::vector<Batch> batches);

}  // namespace tutti::nccl_library
