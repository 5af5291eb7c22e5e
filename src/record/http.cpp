#include "record/http.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/socket.hpp"
#include "core/thread.hpp"
#include "core/unix_socket.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string_view>
#include <utility>

namespace tutti::record {
namespace {

using namespace std::chrono_literals;

// Of one answer, and of all that http_get waits for at once.
constexpr std::size_t answer_bytes_max = std::size_t{16} << 20, answers_bytes_max = std::size_t{128} << 20;
constexpr std::chrono::milliseconds between_tries{10};
constexpr std::chrono::milliseconds time_to_ask{
    100};  // before a newcomer may have the place of a client that is silent
// A client that guesses gets few guesses.
constexpr auto pause_after_a_wrong_secret = 200ms;

std::string local_name(std::uint16_t port) {
    return fmt::format("tutti-pages-{}", port);
}

// Not net::wait_for: a signal that ends the waits of this process ends no page, and the log gets no line about slow
// clients.
bool wait_until(int fd, short events, const Deadline& deadline, const AbortFlag& stop) {
    TUTTI_ASSERT(fd >= 0 && events != 0);
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
        TUTTI_ASSERT(static_cast<std::size_t>(sent) <= bytes.size());
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
      listener_(net::listen_tcp("127.0.0.1", port, net::one_question(), static_cast<int>(connections_max))),
      local_listener_(net::listen_unix(local_name(port), static_cast<int>(connections_max))),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_(thread::start({"tutti-pages", "the pages at TUTTI_STATUS_PORT"}, [this] { accept(); })) {}

HttpServer::~HttpServer() {
    TUTTI_ASSERT(thread_.joinable() && thread_.get_id() != std::this_thread::get_id());
    stop_.raise("the pages are closed");
    (void)!::eventfd_write(wake_.get(), 1);
    thread_.join();
}

void HttpServer::accept() {
    while (!stop_.raised()) {
        clear();
        // Clients that come while no connection can go wait in the listeners' queues.
        const bool has_room = connections_.size() < connections_max || idle_one() != nullptr;
        pollfd entries[]{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}, {local_listener_.get(), POLLIN, 0}};
        ::poll(entries, has_room ? 3 : 1, has_room ? 1000 : static_cast<int>(time_to_ask.count()));
        eventfd_t woken = 0;
        (void)::eventfd_read(wake_.get(), &woken);
        for (const pollfd& listener : std::span(entries).last(2)) {
            if (stop_.raised() || listener.revents == 0 || !make_room()) continue;
            if (auto accepted = net::try_accept(listener.fd)) admit(std::move(*accepted));
        }
    }
    for (Connection& connection : connections_) connection.thread.join();
}

// One whose place a newcomer may have: it has its answer, or has been here for some time without a request.
HttpServer::Connection* HttpServer::idle_one() {
    const Instant now = Clock::now();
    const auto found = std::ranges::find_if(connections_, [&](const Connection& connection) {
        const State state = connection.state.load();
        return state == State::answered || (state == State::asking && now - connection.since >= time_to_ask);
    });
    return found == connections_.end() ? nullptr : &*found;
}

// False: nobody has to go.
bool HttpServer::make_room() {
    while (connections_.size() >= connections_max) {
        Connection* idle = idle_one();
        if (idle == nullptr) return false;
        State expected = idle->state.load();
        if (expected == State::busy || !idle->state.compare_exchange_strong(expected, State::over)) continue;
        ::shutdown(idle->fd.get(), SHUT_RDWR);  // its thread leaves at once
        clear();
    }
    return true;
}

void HttpServer::admit(UniqueFd fd) {
    TUTTI_ASSERT(fd && connections_.size() < connections_max);
    Connection& connection = connections_.emplace_back();
    connection.fd = std::move(fd);
    try {
        connection.thread = thread::start({"tutti-page", "a page at TUTTI_STATUS_PORT"}, [this, &connection] {
            serve(connection);
            enter(connection, State::over);
        });
    } catch (const std::exception& error) {
        connections_.pop_back();
        TUTTI_WARN("no page: {}", error.what());
    }
}

void HttpServer::clear() {
    connections_.remove_if([](Connection& connection) {
        if (connection.state.load() != State::over) return false;
        connection.thread.join();
        TUTTI_ASSERT(!connection.thread.joinable());
        return true;
    });
}

// False: it was ended for a newcomer.
bool HttpServer::enter(Connection& connection, State state) {
    TUTTI_ASSERT(state != State::asking);
    State before = connection.state.load();
    while (before != State::over) {
        if (!connection.state.compare_exchange_weak(before, state)) continue;
        (void)!::eventfd_write(wake_.get(), 1);
        return true;
    }
    return false;
}

void HttpServer::serve(Connection& connection) {
    const int fd = connection.fd.get();
    TUTTI_ASSERT(fd >= 0);
    const Deadline deadline = Deadline::after(time_max);
    const auto head = receive_head(fd, deadline, stop_);
    if (!head || !enter(connection, State::busy)) return;
    std::string text;
    try {
        text = answer(*head);
    } catch (const std::exception& error) {
        text = refusal("500 Internal Server Error", error.what());
    }
    if (!send_all(fd, text, deadline, stop_)) return;
    // Closing at once, with something unread, would take the answer from the client.
    ::shutdown(fd, SHUT_WR);
    const Deadline linger = Deadline::after(1s);
    if (!enter(connection, State::answered)) return;
    while (wait_until(fd, POLLIN, linger, stop_)) {
        const auto more = receive(fd);
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
    TUTTI_ASSERT(text.find(end_of_head) != std::string::npos);
    if (request->method == "HEAD") text.resize(text.find(end_of_head) + end_of_head.size());
    return text;
}

namespace {

// One request of http_get on its way.
struct Asking {
    std::string name;  // of the server's Unix socket
    UniqueFd fd;
    std::string unsent, received;
    bool over = false;
    HttpAnswer answer;

    void give_up() {
        fd.reset();
        over = true;
    }
    // A server that is busy has a full queue: it is tried again.
    void connect() {
        TUTTI_ASSERT(!over && !fd);
        int error = 0;
        fd = net::try_connect_unix(name, error);
        if (error == EAGAIN) return;
        answer.refused = error == ECONNREFUSED;
        if (!fd) return give_up();
        const uid_t user = net::peer_uid(fd.get());
        if (user == ::geteuid()) return;
        answer.foreign_user = user;
        give_up();
    }
    void send() {
        TUTTI_ASSERT(fd && !unsent.empty());
        const ssize_t sent = ::send(fd.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL);
        if (sent > 0)
            unsent.erase(0, static_cast<std::size_t>(sent));
        else if (errno != EAGAIN && errno != EINTR)
            give_up();
    }
    void receive_more(std::size_t& allowed) {
        TUTTI_ASSERT(fd && unsent.empty());
        const auto more = receive(fd.get());
        if (!more) return;
        received += *more;
        if (received.size() > answer_bytes_max || more->size() > allowed) return give_up();
        allowed -= more->size();
        TUTTI_ASSERT(received.size() <= answer_bytes_max);
        if (more->empty()) finish();
    }
    void finish() {
        give_up();
        answer = parse_answer(received);
        received = {};
    }
};

}  // namespace

std::vector<HttpAnswer> http_get(const std::vector<std::uint16_t>& ports, const std::string& path,
                                 const security::Secret& token, const Deadline& deadline, const AbortFlag& stop) {
    std::size_t allowed = answers_bytes_max;
    TUTTI_ASSERT(path.starts_with('/'));
    std::vector<Asking> all(ports.size());
    for (std::size_t i = 0; i < ports.size(); ++i) {
        all[i].name = local_name(ports[i]);
        all[i].unsent = fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\n\r\n", path,
                                    ports[i], token.to_text());
    }
    while (!stop.raised()) {
        std::vector<pollfd> entries;
        std::vector<Asking*> asked;
        bool is_busy = false;
        for (Asking& one : all) {
            if (!one.over && !one.fd) one.connect();
            is_busy |= !one.over && !one.fd;
            if (one.over || !one.fd) continue;
            entries.push_back({one.fd.get(), static_cast<short>(one.unsent.empty() ? POLLIN : POLLOUT), 0});
            asked.push_back(&one);
        }
        TUTTI_ASSERT(entries.size() == asked.size());
        if ((asked.empty() && !is_busy) || deadline.expired()) break;
        ::poll(entries.data(), entries.size(), deadline.poll_ms(is_busy ? between_tries : wait_slice));
        for (std::size_t i = 0; i < asked.size(); ++i) {
            if (entries[i].revents == 0) continue;
            if (asked[i]->unsent.empty())
                asked[i]->receive_more(allowed);
            else
                asked[i]->send();
        }
    }
    std::vector<HttpAnswer> answers;
    for (Asking& one : all) answers.push_back(std::move(one.answer));
    TUTTI_ASSERT(answers.size() == ports.size());
    return answers;
}

}  // namespace tutti::record
