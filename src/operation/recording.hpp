// Recording: what a group's recorder learns of its operations.
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

/// It is issued. 0: it is not recorded.
record::Ticket begin(record::Recorder& recorder, const Ranks& ranks, const Operation& operation);
/// Of an all_to_all: the recorder learns the lengths of its blocks, if it keeps those.
void note_splits(record::Recorder& recorder, const Ranks& ranks, const engine::CollectiveCall& call,
                 record::Ticket ticket);
/// It is over, well or with an error.
void end(record::Recorder& recorder, const Ranks& ranks, const Operation& operation, bool well);
/// The world has failed, and with it the group.
void failure(record::Recorder& recorder, const Ranks& ranks, const std::exception_ptr& error);
/// A rank of the world has died, or has left.
void gone(record::Recorder& recorder, const Ranks& ranks, int global);
/// It has waited for `peers` between these two looks, if it had begun.
void waits(record::Recorder& recorder, const Operation& operation, std::span<const int> peers, Instant since,
           Instant now);

}  // namespace tutti::detail::recording
