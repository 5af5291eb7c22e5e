// The debug level for use inside the library; tutti/debug.hpp declares the public functions.
#pragma once

#include <tutti/debug.hpp>

#include <atomic>

namespace tutti {

/// The cached result of get_debug_level(): a DebugLevel, or -1 before its first call.
extern std::atomic<int> debug_level_now;

inline bool debug_level_is_detail() noexcept {
    const int level = debug_level_now.load(std::memory_order_relaxed);
    return level == static_cast<int>(DebugLevel::detail) || (level < 0 && get_debug_level() == DebugLevel::detail);
}

/// Sets the debug level to the environment's, unless the program has set one. Throws InvalidArgument if a variable has
/// an invalid value.
void take_debug_level_from_env();

}  // namespace tutti
