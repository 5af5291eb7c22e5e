// Waiting for a signal of this rank.
//
// Threads: any.
#pragma once

#include "core/deadline.hpp"
#include "window/memory.hpp"

#include <tutti/error.hpp>

#include <cstdint>

namespace tutti::window {

struct Wanted {
    int signal = 0;
    std::uint64_t at_least = 0;
};

/// Progresses the world until the signal has at least the value. Throws Timeout, Aborted (interrupted), PeerLost when
/// no rank is left that could raise it, or the error by which the group has failed.
void wait_for(Group& group, const Memory& memory, Wanted wanted, const Deadline& deadline);

/// Processes messages that have arrived, if there is no progress thread (the system refused one).
void take_what_has_come(Group& group);

/// Throws the group's error, naming the call `name`, if the group has failed; in a forked child, throws an error that
/// says that the group belongs to the parent.
void check_sound(Group& group, const char* name);

}  // namespace tutti::window
