// Recording: writes a group's operations to its flight recorder.
//
// Threads: one at a time (the world's lock).
#pragma once

#include "core/deadline.hpp"
#include "operation/operation.hpp"
#include "operation/ranks.hpp"
#include "record/recorder.hpp"

#include <exception>
#include <span>

namespace tutti::detail::recording {

/// Records that the operation is issued. Returns 0 if the recorder does not record it.
record::Ticket begin(record::Recorder& recorder, const Ranks& ranks, const Operation& operation);
/// Records the lengths of the blocks of an all_to_all, if the recorder keeps block lengths.
void note_splits(record::Recorder& recorder, const Ranks& ranks, const engine::CollectiveCall& call,
                 record::Ticket ticket);
/// Records that the operation is complete, with success or an error.
void end(record::Recorder& recorder, const Ranks& ranks, const Operation& operation, bool well);
/// Records that the world has failed, and with it the group.
void failure(record::Recorder& recorder, const Ranks& ranks, const std::exception_ptr& error);
/// Records that a rank of the world has died, or has left.
void gone(record::Recorder& recorder, const Ranks& ranks, int global);
/// Records that the operation has waited for `peers` from `since`, or from its start if that is later, to `now`.
void waits(record::Recorder& recorder, const Operation& operation, std::span<const int> peers, Instant since,
           Instant now);

}  // namespace tutti::detail::recording
