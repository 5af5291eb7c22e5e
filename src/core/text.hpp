// Texts: reads lines and numbers from texts, and makes texts safe to print. Pure functions.
#pragma once

#include "core/assert.hpp"

#include <algorithm>
#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace tutti {

/// The number that the whole `text` spells in base `base`; nullopt if it is not a number or does not fit T.
template <std::integral T>
std::optional<T> number_in(std::string_view text, int base = 10) noexcept {
    TUTTI_ASSERT(base >= 2 && base <= 36);
    T value{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value, base);
    return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}
template <std::floating_point T>
std::optional<T> number_in(std::string_view text) noexcept {
    T value{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

/// ASCII letters in lower case, independent of the locale.
std::string in_lower_case(std::string text);

/// Replaces each character that controls a terminal (C0 but newlines and tabs, DEL, and C1 in UTF-8) by an escape such
/// as "\\x1b".
std::string visible(std::string_view text);
/// As visible(), but on one line: newlines become "\\n".
std::string visible_line(std::string_view text);

/// Takes the first line off `text`, which need not end with a newline; returns it without its newline.
inline std::string_view take_line(std::string_view& text) noexcept {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return line;
}

}  // namespace tutti
