// The worlds of this process: what is to be done with all of them when it forks, and when it ends.
//
// A forked child has its parent's groups, but none of its threads, and what it did to connections or memory would be
// done to the parent: its groups refuse everything, and are let go of without a word.
//
// Threads: any.
#pragma once

#include <chrono>
#include <exception>
#include <string>

namespace tutti::detail {
class World;
}

namespace tutti::detail::worlds {

/// A world has been joined. Returns the failure that it has in a forked child.
std::exception_ptr add(World& world);
void remove(World& world);
/// Leaves them all. Operations still in flight after `limit` end on all ranks with Aborted.
void leave_all(std::chrono::milliseconds limit, const std::string& reason) noexcept;
/// From now on the end of the process leaves them; before anything is made that a world uses.
void leave_at_exit();

}  // namespace tutti::detail::worlds
