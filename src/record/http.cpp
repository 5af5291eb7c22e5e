#include "record/http.hpp"

#include "core/log.hpp"
#include "core/socket.hpp"
#include "core/thread.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

namespace tutti::record {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view end_of_head = "\r\n\r\n";
constexpr std::size_t answer_bytes_max = std::size_t{64} << 20;
// A client that guesses gets few guesses.
constexpr auto pause_after_a_wrong_secret = 200ms;

// Not net::wait_for: a signal that ends the waits of this process ends no page, and the log gets no line about slow
// clients.
bool wait_until(int fd, short events, const Deadline& deadline, const AbortFlag& stop) {
    while (!deadline.expired() && !stop.raised()) {
        pollfd entry{fd, events, 0};
        if (::poll(&entry, 1, deadline.poll_ms(wait_slice)) > 0) return true;
    }
    return false;
}

bool send_all(int fd, std::string_view bytes, const Deadline& deadline, const AbortFlag& stop) {
    while (!bytes.empty()) {
        if (!wait_until(fd, POLLOUT, deadline, stop)) return false;
        const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (sent <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
}

// The next bytes that are there; nullopt: none now, an empty one: no more.
std::optional<std::string> receive(int fd) {
    char buffer[4096];
    const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    return std::string(buffer, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
}

// A client's whole request head; nullopt: it did not come to an end.
std::optional<std::string> receive_head(int fd, const Deadline& deadline, const AbortFlag& stop) {
    std::string head;
    while (head.size() <= HttpServer::request_bytes_max) {
        if (head.find(end_of_head) != std::string::npos) return head;
        if (!wait_until(fd, POLLIN, deadline, stop)) return std::nullopt;
        const auto more = receive(fd);
        if (more && more->empty()) return std::nullopt;
        head += more.value_or("");
    }
    return head;
}

bool same_in_any_case(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, [](char x, char y) { return (x | 0x20) == (y | 0x20); });
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

// Of a head without its first line; empty: it is not there.
std::string_view field(std::string_view lines, std::string_view name) {
    while (!lines.empty()) {
        const std::string_view line = lines.substr(0, lines.find("\r\n"));
        lines.remove_prefix(std::min(line.size() + 2, lines.size()));
        const std::size_t colon = line.find(':');
        if (colon != std::string_view::npos && same_in_any_case(line.substr(0, colon), name))
            return trimmed(line.substr(colon + 1));
    }
    return {};
}

bool knows(const security::Secret& expected, std::string_view authorization) {
    constexpr std::string_view scheme = "Bearer ";
    if (authorization.size() <= scheme.size() || authorization.size() > HttpServer::request_bytes_max) return false;
    if (!same_in_any_case(authorization.substr(0, scheme.size()), scheme)) return false;
    const std::string_view token = trimmed(authorization.substr(scheme.size()));
    return !token.empty() && token.size() <= 4096 && security::Secret::from_text(token) == expected;
}

std::string response(const char* status, const HttpPage& page, const char* more = "") {
    return fmt::format(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n{}\r\n{}",
        status, page.type, page.body.size(), more, page.body);
}

std::string refusal(const char* status, const std::string& why, const char* more = "") {
    return response(status, {"text/plain; charset=utf-8", why + "\n"}, more);
}

}  // namespace

security::Secret page_token(const security::Secret& job) {
    return job.derive("pages");
}

HttpServer::HttpServer(std::uint16_t port, security::Secret token, HttpPages pages)
    : token_(std::move(token)),
      pages_(std::move(pages)),
      listener_(net::listen_tcp("127.0.0.1", port, static_cast<int>(connections_max))),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_(thread::start({"tutti-pages", "the pages at TUTTI_STATUS_PORT"}, [this] { accept(); })) {}

HttpServer::~HttpServer() {
    stop_.raise("the pages are closed");
    (void)!::eventfd_write(wake_.get(), 1);
    thread_.join();
}

void HttpServer::accept() {
    while (!stop_.raised()) {
        clear();
        // Clients that come while all connections are taken wait in the listener's queue.
        const bool full = connections_.size() >= connections_max;
        pollfd entries[]{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
        ::poll(entries, full ? 1 : 2, full ? 10 : 1000);
        if (full || stop_.raised() || entries[1].revents == 0) continue;
        auto accepted = net::try_accept(listener_.get());
        if (!accepted) continue;
        Connection& connection = connections_.emplace_back();
        try {
            connection.thread =
                thread::start({"tutti-page", "a page at TUTTI_STATUS_PORT"},
                              [this, &connection, fd = std::make_shared<UniqueFd>(std::move(*accepted))] {
                                  serve(*fd);
                                  fd->reset();
                                  connection.over.store(true, std::memory_order_release);
                              });
        } catch (const std::exception& error) {
            connections_.pop_back();
            TUTTI_WARN("no page: {}", error.what());
        }
    }
    for (Connection& connection : connections_) connection.thread.join();
}

void HttpServer::clear() {
    for (Connection& connection : connections_) {
        if (connection.over.load(std::memory_order_acquire)) connection.thread.join();
    }
    connections_.remove_if([](const Connection& connection) { return !connection.thread.joinable(); });
}

void HttpServer::serve(const UniqueFd& fd) const {
    const Deadline deadline = Deadline::after(time_max);
    const auto head = receive_head(fd.get(), deadline, stop_);
    if (!head) return;
    std::string text;
    try {
        text = answer(*head);
    } catch (const std::exception& error) {
        text = refusal("500 Internal Server Error", error.what());
    }
    if (!send_all(fd.get(), text, deadline, stop_)) return;
    // Closing at once, with something unread, would take the answer from the client.
    ::shutdown(fd.get(), SHUT_WR);
    const Deadline linger = Deadline::after(1s);
    while (wait_until(fd.get(), POLLIN, linger, stop_)) {
        const auto more = receive(fd.get());
        if (more && more->empty()) return;
    }
}

std::string HttpServer::answer(const std::string& request) const {
    const std::size_t end = request.find(end_of_head);
    if (end == std::string::npos)
        return refusal("431 Request Header Fields Too Large",
                       fmt::format("a request of more than {} bytes", request_bytes_max));
    const std::string_view head = std::string_view(request).substr(0, end + 2);
    const std::string_view line = head.substr(0, head.find("\r\n"));
    const std::size_t first = line.find(' '), last = line.rfind(' ');
    if (first == std::string_view::npos || first == last || !line.substr(last + 1).starts_with("HTTP/1."))
        return refusal("400 Bad Request", "expected a request of HTTP/1.1");
    if (!knows(token_, field(head.substr(line.size() + 2), "authorization"))) {
        const Deadline pause = Deadline::after(pause_after_a_wrong_secret);
        while (!pause.expired() && !stop_.raised()) ::poll(nullptr, 0, pause.poll_ms(wait_slice));
        return refusal("401 Unauthorized", "expected Authorization: Bearer TOKEN; tutti status token prints this job's",
                       "WWW-Authenticate: Bearer realm=\"tutti\"\r\n");
    }
    const std::string_view method = line.substr(0, first);
    if (method != "GET" && method != "HEAD")
        return refusal("405 Method Not Allowed", fmt::format("{}: expected GET or HEAD", method),
                       "Allow: GET, HEAD\r\n");
    const std::string_view target = line.substr(first + 1, last - first - 1);
    const std::string path(target.substr(0, target.find('?')));
    const auto page = pages_(path, stop_);
    if (!page) return refusal("404 Not Found", path + " is no page: / lists them");
    std::string text = response("200 OK", *page);
    if (method == "HEAD") text.resize(text.find(end_of_head) + end_of_head.size());
    return text;
}

namespace {

// One request of http_get on its way.
struct Asking {
    UniqueFd fd;
    std::string unsent, received;
    bool over = false;
    HttpAnswer answer;

    void give_up() {
        fd.reset();
        over = true;
    }
    void send() {
        const int error = net::connect_error(fd.get());
        if (error == EINPROGRESS) return;
        answer.refused = error == ECONNREFUSED;
        if (error != 0) return give_up();
        const ssize_t sent = ::send(fd.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL);
        if (sent > 0)
            unsent.erase(0, static_cast<std::size_t>(sent));
        else if (errno != EAGAIN && errno != EINTR)
            give_up();
    }
    void receive_more() {
        const auto more = receive(fd.get());
        if (!more) return;
        received += *more;
        if (received.size() > answer_bytes_max) return give_up();
        if (more->empty()) finish();
    }
    void finish() {
        give_up();
        const std::size_t end = received.find(end_of_head);
        constexpr std::string_view version = "HTTP/1.1 ";
        if (end == std::string::npos || !received.starts_with(version)) return;
        const std::string_view head = std::string_view(received).substr(0, end + 2);
        answer.status = head.substr(version.size(), head.find("\r\n") - version.size());
        if (!answer.status.starts_with("200 ")) return;
        const std::string_view digits = field(head.substr(head.find("\r\n") + 2), "content-length");
        std::size_t length = 0;
        std::from_chars(digits.data(), digits.data() + digits.size(), length);
        std::string body = received.substr(end + end_of_head.size());
        if (body.size() == length) answer.body = std::move(body);  // or else it was cut off
    }
};

}  // namespace

std::vector<HttpAnswer> http_get(const std::vector<std::uint16_t>& ports, const std::string& path,
                                 const security::Secret& token, const Deadline& deadline, const AbortFlag& stop) {
    std::vector<Asking> all(ports.size());
    for (std::size_t i = 0; i < ports.size(); ++i) {
        Asking& one = all[i];
        one.unsent = fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\n\r\n", path,
                                 ports[i], token.to_text());
        const int error = net::begin_connect({"127.0.0.1", ports[i]}, one.fd);
        if (error == 0) continue;
        one.answer.refused = error == ECONNREFUSED;
        one.over = true;
    }
    while (!deadline.expired() && !stop.raised()) {
        std::vector<pollfd> entries;
        std::vector<Asking*> asked;
        for (Asking& one : all) {
            if (one.over) continue;
            entries.push_back({one.fd.get(), static_cast<short>(one.unsent.empty() ? POLLIN : POLLOUT), 0});
            asked.push_back(&one);
        }
        if (asked.empty()) break;
        ::poll(entries.data(), entries.size(), deadline.poll_ms(wait_slice));
        for (std::size_t i = 0; i < asked.size(); ++i) {
            if (entries[i].revents == 0) continue;
            if (asked[i]->unsent.empty())
                asked[i]->receive_more();
            else
                asked[i]->send();
        }
    }
    std::vector<HttpAnswer> answers;
    for (Asking& one : all) answers.push_back(std::move(one.answer));
    return answers;
}

}  // namespace tutti::record
