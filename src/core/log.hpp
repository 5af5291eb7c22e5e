// Logging: levels, and one function that writes a line. Only log.cpp uses spdlog.
//
// Threads: any. Nothing is written below the level; the arguments of a suppressed line are not formatted.
// Lines go to stderr: "W1121 13:45:10.123456 4711 file.cpp:12] message", or a JSON object each (TUTTI_LOG_FORMAT=json).
#pragma once

#include <tutti/debug.hpp>

#include <fmt/format.h>

#include <string_view>

namespace tutti::log {

enum class Level { trace = 0, debug = 1, info = 2, warning = 3, error = 4, off = 5 };

/// The level in force: from TUTTI_LOG_LEVEL (trace, debug, info, warning, error, off), else TORCH_CPP_LOG_LEVEL, else
/// warning. A debug level above off may turn info into debug or trace (tutti/debug.hpp).
Level level() noexcept;
void set_level(Level level) noexcept;
/// The level in force after set_level(chosen) while the debug level is `debug`.
Level effective(Level chosen, DebugLevel debug) noexcept;
/// Recomputes the level in force for a new debug level.
void follow(DebugLevel debug) noexcept;
void write(Level level, const char* file, int line, std::string_view message);

template <class... Args>
void emit(Level at, const char* file, int line, fmt::format_string<Args...> format, Args&&... args) {
    if (at >= level()) write(at, file, line, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tutti::log

// Macros, only to capture the caller's file and line.
#define TUTTI_TRACE(...) ::tutti::log::emit(::tutti::log::Level::trace, __FILE__, __LINE__, __VA_ARGS__)
#define TUTTI_DEBUG(...) ::tutti::log::emit(::tutti::log::Level::debug, __FILE__, __LINE__, __VA_ARGS__)
#define TUTTI_INFO(...) ::tutti::log::emit(::tutti::log::Level::info, __FILE__, __LINE__, __VA_ARGS__)
#define TUTTI_WARN(...) ::tutti::log::emit(::tutti::log::Level::warning, __FILE__, __LINE__, __VA_ARGS__)
#define TUTTI_ERROR(...) ::tutti::log::emit(::tutti::log::Level::error, __FILE__, __LINE__, __VA_ARGS__)
