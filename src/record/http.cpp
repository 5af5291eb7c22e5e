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
#include <string_view>
#include <utility>

namespace tutti::record {
namespace {

using namespace std::chrono_literals;

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

bool knows(const security::Secret& expected, std::string_view authorization) {
    const std::string_view token = bearer_token(authorization);
    return !token.empty() && token.size() <= 4096 && security::Secret::from_text(token) == expected;
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

std::string HttpServer::answer(const std::string& head) const {
    if (head.find(end_of_head) == std::string::npos)
        return refusal("431 Request Header Fields Too Large",
                       fmt::format("a request of more than {} bytes", request_bytes_max));
    const auto request = parse_request(head);
    if (!request) return refusal("400 Bad Request", "expected a request of HTTP/1.1");
    if (!knows(token_, request->authorization)) {
        const Deadline pause = Deadline::after(pause_after_a_wrong_secret);
        while (!pause.expired() && !stop_.raised()) ::poll(nullptr, 0, pause.poll_ms(wait_slice));
        return refusal("401 Unauthorized", "expected Authorization: Bearer TOKEN; tutti status token prints this job's",
                       "WWW-Authenticate: Bearer realm=\"tutti\"\r\n");
    }
    if (request->method != "GET" && request->method != "HEAD")
        return refusal("405 Method Not Allowed", fmt::format("{}: expected GET or HEAD", request->method),
                       "Allow: GET, HEAD\r\n");
    const std::string path(request->path);
    const auto page = pages_(path, stop_);
    if (!page) return refusal("404 Not Found", path + " is no page: / lists them");
    std::string text = response("200 OK", *page);
    if (request->method == "HEAD") text.resize(text.find(end_of_head) + end_of_head.size());
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
        answer = parse_answer(received);
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
