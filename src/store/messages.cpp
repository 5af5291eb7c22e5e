#include "store/messages.hpp"

#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tutti::store {

std::string show_key(std::string_view key) {
    static constexpr std::size_t shown = 64;
    std::string text = "\"";
    for (const char c : key.substr(0, shown)) {
        const auto code = static_cast<unsigned char>(c);
        if (code < 0x20 || code >= 0x7f || c == '"' || c == '\\') {
            text += fmt::format("\\x{:02x}", code);
        } else {
            text += c;
        }
    }
    text += '"';
    if (key.size() > shown) text += fmt::format("… ({} bytes)", key.size());
    return text;
}

std::string show_keys(std::span<const std::string> keys) {
    static constexpr std::size_t shown = 8;
    std::string text = keys.size() == 1 ? "key " : "keys ";
    for (std::size_t i = 0; i < std::min(keys.size(), shown); ++i) {
        if (i > 0) text += ", ";
        text += show_key(keys[i]);
    }
    if (keys.size() > shown) text += fmt::format(" and {} more", keys.size() - shown);
    return text;
}

std::string show_duration(Clock::duration duration) {
    const double seconds = std::chrono::duration<double>(duration).count();
    return seconds < 1 ? fmt::format("{:.0f} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}

namespace {

bool waits_for_keys(std::string_view operation) {
    return operation == "get" || operation == "multi_get" || operation == "wait";
}

}  // namespace

std::string what_is_awaited(const std::string& store, std::string_view operation, std::span<const std::string> keys) {
    TUTTI_ASSERT(!store.empty() && !operation.empty());
    if (waits_for_keys(operation)) return fmt::format("{} of {} to be set", show_keys(keys), store);
    return fmt::format("the answer of {} to {}{}", store, operation, keys.empty() ? "" : " of " + show_keys(keys));
}

void throw_timeout(const std::string& store, std::string_view operation, std::span<const std::string> keys,
                   Instant start, std::chrono::milliseconds timeout) {
    std::string what;
    TUTTI_ASSERT(!store.empty() && !operation.empty() && start <= Clock::now());
    if (!keys.empty()) what = ": " + show_keys(keys);
    if (!keys.empty() && waits_for_keys(operation)) what += keys.size() == 1 ? " was not set" : " were not all set";
    ErrorContext context{.operation = fmt::format("Store.{}", operation)};
    context.hint = waits_for_keys(operation)
                       ? "look at the process that should set it; if it is only slow, give a longer timeout"
                       : "look whether the process that serves the store still runs";
    context.elapsed = Clock::now() - start;
    throw DistStoreError(fmt::format("{}.{} timed out after {}{}", store, operation, show_duration(timeout), what),
                         context, ErrorCode::timeout);
}

void check_key(std::string_view key) {
    if (key.size() <= max_key_bytes) return;
    throw InvalidArgument(
        fmt::format("a key of {} bytes ({}): expected at most {}", key.size(), show_key(key), max_key_bytes));
}

void check_value(std::string_view key, std::string_view value) {
    check_key(key);
    if (value.size() <= max_value_bytes) return;
    throw InvalidArgument(fmt::format("a value of {} bytes for key {}: expected at most {}", value.size(),
                                      show_key(key), max_value_bytes));
}

}  // namespace tutti::store
