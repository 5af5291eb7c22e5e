#include "record/http_message.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tutti::record {
namespace {

constexpr std::string_view end_of_line = "\r\n";

bool same_in_any_case(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, [](char x, char y) { return (x | 0x20) == (y | 0x20); });
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

// The next line; `text` begins behind it from now on.
std::string_view take_line(std::string_view& text) {
    const std::string_view line = text.substr(0, text.find(end_of_line));
    text.remove_prefix(std::min(line.size() + end_of_line.size(), text.size()));
    return line;
}

// Of a head without its first line; empty: it is not there.
std::string_view field(std::string_view lines, std::string_view name) {
    TUTTI_ASSERT(!name.empty());
    while (!lines.empty()) {
        const std::string_view line = take_line(lines);
        const std::size_t colon = line.find(':');
        if (colon != std::string_view::npos && same_in_any_case(line.substr(0, colon), name))
            return trimmed(line.substr(colon + 1));
    }
    return {};
}

// The lines before the empty one.
std::optional<std::string_view> head_of(std::string_view text) {
    const std::size_t end = text.find(end_of_head);
    if (end == std::string_view::npos) return std::nullopt;
    TUTTI_ASSERT(end + end_of_head.size() <= text.size());
    return text.substr(0, end + end_of_line.size());
}

}  // namespace

std::optional<HttpRequest> parse_request(std::string_view text) {
    auto head = head_of(text);
    if (!head) return std::nullopt;
    const std::string_view line = take_line(*head);
    const std::size_t first = line.find(' '), last = line.rfind(' ');
    if (first == std::string_view::npos || first == last || !line.substr(last + 1).starts_with("HTTP/1."))
        return std::nullopt;
    const std::string_view target = line.substr(first + 1, last - first - 1);
    TUTTI_ASSERT(first < last && last < line.size());
    return HttpRequest{line.substr(0, first), target.substr(0, target.find('?')), field(*head, "authorization")};
}

std::string_view bearer_token(std::string_view authorization) {
    constexpr std::string_view scheme = "Bearer ";
    if (authorization.size() <= scheme.size() || !same_in_any_case(authorization.substr(0, scheme.size()), scheme))
        return {};
    return trimmed(authorization.substr(scheme.size()));
}

std::string response(std::string_view status, const HttpPage& page, std::string_view more) {
    TUTTI_ASSERT(!status.empty() && !page.type.empty());
    TUTTI_ASSERT(more.empty() || more.ends_with(end_of_line));
    return fmt::format(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n{}\r\n{}",
        status, page.type, page.body.size(), more, page.body);
}

HttpAnswer parse_answer(std::string_view text) {
    constexpr std::string_view version = "HTTP/1.1 ";
    auto head = head_of(text);
    if (!head || !head->starts_with(version)) return {};
    HttpAnswer answer{.status = std::string(take_line(*head).substr(version.size()))};
    if (!answer.status.starts_with("200 ")) return answer;
    const std::string_view digits = field(*head, "content-length");
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
    const std::string_view body = text.substr(text.find(end_of_head) + end_of_head.size());
    const bool is_whole = error == std::errc() && end == digits.data() + digits.size() && body.size() == length;
    if (is_whole) answer.body = body;  // or else it was cut off
    return answer;
}

}  // namespace tutti::record
