// The worlds of this process, and what happens to them when it forks and when it ends.
//
// A forked child has its parent's groups, but none of its threads, and if it used their connections or memory that
// would affect the parent: so its groups throw, and their destructors do nothing.
//
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

/// This process has joined a world. Returns the error with which the world fails in a forked child.
std::exception_ptr add(World& world);
void remove(World& world);
/// Leaves them all. Operations still in flight after `limit` end on all ranks with Aborted.
void leave_all(std::chrono::milliseconds limit, const std::string& reason) noexcept;
/// From now on the worlds are left when the process ends. Call it before making anything that a world uses.
void leave_at_exit();

}  // namespace tutti::detail::worlds
