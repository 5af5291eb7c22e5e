// The worlds of this process, and what happens to them when the process forks and when it ends.
//
// A forked child has its parent's groups, but none of the parent's threads, and use of their connections or memory
// would affect the parent: so its groups throw, and their destructors do nothing.
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

/// Adds a world that this process has joined. Returns the error with which the world fails in a forked child.
std::exception_ptr add(World& world);
void remove(World& world);
/// Leaves all worlds. Operations still in flight after `limit` end on all ranks with Aborted.
void leave_all(std::chrono::milliseconds limit, const std::string& reason) noexcept;
/// From now on this process leaves its worlds when it ends. Call it before making anything that a world uses.
void leave_at_exit();

}  // namespace tutti::detail::worlds
