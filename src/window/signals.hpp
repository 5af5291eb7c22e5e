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

/// Without a progress thread (the system refused one): processes messages that have arrived.
void take_what_has_come(Group& group);

/// If the group has failed, throws its error, with the call `name`; in a forked child, an error that says that the
/// group is the parent's.
void check_sound(Group& group, const char* name);

}  // namespace tutti::window
