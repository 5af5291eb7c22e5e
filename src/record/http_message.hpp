// The messages of HTTP/1.1, as far as pages need them (http.hpp). Pure functions of text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::record {

struct HttpPage {
    std::string type;  ///< the content type, such as "text/plain; charset=utf-8"
    std::string body;
};

/// Ends the head of a request or of a response.
inline constexpr std::string_view end_of_head = "\r\n\r\n";

struct HttpRequest {
    std::string_view method, path;   ///< the path without its query
    std::string_view authorization;  ///< the value of this header; empty: there is none
};
/// Parses a request with a complete head. The result refers to the text. nullopt: not a request of HTTP/1.
std::optional<HttpRequest> parse_request(std::string_view text);

/// The token of "Bearer TOKEN"; empty for any other text.
std::string_view bearer_token(std::string_view authorization);

/// A response after which the connection closes; `more`: further header lines, each with its line end.
std::string response(std::string_view status, const HttpPage& page, std::string_view more = "");

struct HttpAnswer {
    std::optional<std::string> body;              ///< complete; only with status 200
    std::string status;                           ///< "404 Not Found"; empty: there was no answer
    bool refused = false;                         ///< nobody listens there
    std::optional<std::uint32_t> foreign_user{};  ///< the user of the process that listens there, which was not asked
};
/// Parses all bytes that a server has sent on a connection.
HttpAnswer parse_answer(std::string_view text);

}  // namespace tutti::record
