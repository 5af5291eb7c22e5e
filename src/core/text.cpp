#include "core/text.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

// How many bytes at the beginning of a text steer a terminal.
std::size_t steering(std::string_view text) {
    TUTTI_ASSERT(!text.empty());
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
    const bool is_c1 = text.size() > 1 && byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0;
    return is_c1 ? 2 : 0;
}

std::string made_visible(std::string_view text, bool on_one_line) {
    std::string shown;
    shown.reserve(text.size());
    while (!text.empty()) {
        const std::size_t count = text.front() == '\n' || text.front() == '\t' ? 0 : steering(text);
        TUTTI_ASSERT(count <= text.size());
        if (text.front() == '\n' && on_one_line)
            shown += "\\n";
        else if (count == 0)
            shown += text.front();
        for (const char c : text.substr(0, count)) shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        text.remove_prefix(std::max<std::size_t>(count, 1));
    }
    return shown;
}

}  // namespace

std::string in_lower_case(std::string text) {
    for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return text;
}

std::string visible(std::string_view text) {
    return made_visible(text, false);
}

std::string visible_line(std::string_view text) {
    return made_visible(text, true);
}

}  // namespace tutti
