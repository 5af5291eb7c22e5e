// Arenas for scenarios.
#pragma once

#include "explorer.hpp"
#include "transport/shm/arena.hpp"

#include <memory>

namespace tutti::memory_model {

/// Executions use one arena: to map it takes longer than they do. `relying`: so many ranks leave fences to sleepers.
std::shared_ptr<transport::Arena> arena_of(const transport::ArenaLayout& layout, int relying = 0);
/// What lies where in it.
SharedMemory memory_of(const transport::Arena& arena);

}  // namespace tutti::memory_model
