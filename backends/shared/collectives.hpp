// Every collective of a BackendRequest, made of messages: for what a foreign library lacks, and for one that has none.
//
// Threads: run_collective() blocks its caller; several may run at the same time, in channels of their own.
#pragma once

#include "shared/messages.hpp"

#include <tutti/backend.hpp>

namespace tutti::backends {

/// Where this rank is, and by what it reaches the others.
struct Place {
    int rank = 0, size = 1;
    Messages& messages;
};

/// Runs the collective to its end. `channel`: equal on all ranks, not 0, and of this collective alone.
/// Every value is combined once, of all ranks' inputs in the order of their ranks, by tutti::combine(): all operators
/// and types, rounded once.
/// Throws what ended a message (CollectiveMismatch, what Messages was ended with); buffers are then free again.
void run_collective(const BackendRequest& request, const Place& place, std::uint64_t channel);

}  // namespace tutti::backends
