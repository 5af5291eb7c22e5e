// Every collective of a BackendRequest, made of messages: for a foreign library that lacks some or all of them.
//
// Threads: run_collective() blocks its caller; several may run at the same time, in channels of their own.
#pragma once

#include "shared/messages.hpp"

#include <tutti/backend.hpp>

namespace tutti::backends {

/// This rank's place in the group, and its messages to the others.
struct Place {
    int rank = 0, size = 1;
    Messages& messages;
};

/// Runs the collective to its end. `channel`: equal on all ranks, not 0, and of this collective alone.
/// tutti::combine() combines all ranks' inputs of a value once, in rank order: all operators and types, rounded once.
/// Throws the error of a message (CollectiveMismatch, or the error that ended Messages); buffers are then free again.
void run_collective(const BackendRequest& request, const Place& place, std::uint64_t channel);

}  // namespace tutti::backends
