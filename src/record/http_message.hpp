// The messages of HTTP/1.1, as far as pages need them (http.hpp). Pure functions of text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::record {

struct HttpPage {
    std::string type;  ///< of its content, as "text/plain; charset=utf-8"
    std::string body;
};

/// Where a request's head ends, and the lines before an answer's page.
inline constexpr std::string_view end_of_head = "\r\n\r\n";

struct HttpRequest {
    std::string_view method, path;   ///< the path without its query
    std::string_view authorization;  ///< empty: there is no such line
};
/// Of a request that has its end of head. It refers to the text. nullopt: this is no request of HTTP/1.
std::optional<HttpRequest> parse_request(std::string_view text);

/// The token of "Bearer TOKEN"; empty: it is something else.
std::string_view bearer_token(std::string_view authorization);

/// A response whose connection closes behind it; `more`: further lines, each with its end.
std::string response(std::string_view status, const HttpPage& page, std::string_view more = "");

struct HttpAnswer {
    std::optional<std::string> body;              ///< whole; only with status 200
    std::string status;                           ///< "404 Not Found"; empty: there was no answer
    bool refused = false;                         ///< nobody listens there
    std::optional<std::uint32_t> foreign_user{};  ///< whose process listens there: it was not asked
};
/// Of all bytes that a server has sent on a connection.
HttpAnswer parse_answer(std::string_view text);

}  // namespace tutti::record
