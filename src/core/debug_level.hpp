// The debug level inside of the library; the rest is tutti/debug.hpp.
#pragma once

#include <tutti/debug.hpp>

#include <atomic>

namespace tutti {

/// The result of get_debug_level(), without a call: a DebugLevel, or -1 before the first call.
extern std::atomic<int> debug_level_now;

inline bool debug_level_is_detail() noexcept {
    const int level = debug_level_now.load(std::memory_order_relaxed);
    return level == static_cast<int>(DebugLevel::detail) || (level < 0 && get_debug_level() == DebugLevel::detail);
}

/// Throws InvalidArgument when the environment names no level, unless the program has set one. Takes the level that it
/// names.
void take_debug_level_from_env();

}  // namespace tutti
