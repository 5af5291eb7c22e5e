// Waiting for a signal of this rank's.
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

/// Drives the world until the signal has the value. Throws Timeout, Aborted (interrupted), PeerLost when nobody else is
/// left who could raise it, or the error by which the group has failed.
void wait_for(Group& group, const Memory& memory, Wanted wanted, const Deadline& deadline);

/// Where the system gave no progress thread: moves what has come meanwhile.
void take_what_has_come(Group& group);

/// Throws the error by which the group has failed, if it has, told of the call `name`; in a forked child that the group
/// is the parent's.
void check_sound(Group& group, const char* name);

}  // namespace tutti::window
