// The worlds of this process, and the work on all of them when it forks and when it ends.
//
// A forked child has its parent's groups, but none of its threads, and its actions on connections or memory would hit
// the parent: its groups refuse everything, and go without a word.
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

/// This process has joined a world. Returns the failure that the world has in a forked child.
std::exception_ptr add(World& world);
void remove(World& world);
/// Leaves them all. Operations still in flight after `limit` end on all ranks with Aborted.
void leave_all(std::chrono::milliseconds limit, const std::string& reason) noexcept;
/// From now on the end of the process leaves them. Call it before making anything that a world uses.
void leave_at_exit();

}  // namespace tutti::detail::worlds
