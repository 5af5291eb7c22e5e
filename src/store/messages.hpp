// Limits and message texts that all stores share. Pure functions; any thread.
#pragma once

#include "core/deadline.hpp"

#include <span>
#include <string>
#include <string_view>

namespace tutti::store {

inline constexpr std::size_t max_key_bytes = std::size_t{1} << 20U;
inline constexpr std::size_t max_value_bytes = std::size_t{1} << 30U;

/// In quotes, unprintable bytes as \xNN, at most 64 bytes of it.
std::string show_key(std::string_view key);
/// `key "a"`, `keys "a", "b" and 3 more`.
std::string show_keys(std::span<const std::string> keys);
/// "200 ms", "12.5 s".
std::string show_duration(Clock::duration duration);

/// Throws DistStoreError, code timeout: `TCPStore(…).get timed out after 10.0 s: key "a" was not set`.
[[noreturn]] void throw_timeout(const std::string& store, std::string_view operation, std::span<const std::string> keys,
                                Instant start, std::chrono::milliseconds timeout);
/// For Patience's messages: `key "a" of TCPStore(…)`, or `the answer of TCPStore(…) to set of key "a"`.
std::string what_is_awaited(const std::string& store, std::string_view operation, std::span<const std::string> keys);
/// These two throw InvalidArgument for keys and values over the limits.
void check_key(std::string_view key);
void check_value(std::string_view key, std::string_view value);

}  // namespace tutti::store
