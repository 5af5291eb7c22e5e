// HttpServer: a few pages over HTTP/1.1, for people and programs on this host that know a secret token.
//
// Every request needs "Authorization: Bearer TOKEN", compared in constant time; a query parameter would end up in
// histories and logs. The token is derived from the job's secret and does not reveal it (page_token). Any process may
// listen on a port of this host, so a server also has an abstract Unix socket; http_get() connects there, and sends the
// token only to processes of this user. Only GET and HEAD; one request per connection.
//
// A client's cost is bounded: the number of connections, the bytes of a request, and the time to receive it and send
// the answer. If all connections are in use, a new one replaces the oldest idle one.
//
// Threads: one accepts; each connection has its own, so that a page that asks other processes delays no other page. The
// threads of the connections call the pages, several at once.
#pragma once

#include "core/deadline.hpp"
#include "core/fork_guard.hpp"
#include "core/interrupt.hpp"
#include "record/http_message.hpp"
#include "security/secret.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::record {

/// The token that permits reading a job's pages, and nothing else.
security::Secret page_token(const security::Secret& job);

/// Makes the page at `path`; nullopt: there is none.
using HttpPages = std::function<std::optional<HttpPage>(const std::string& path, const AbortFlag& stop)>;

class HttpServer {
 public:
    static constexpr std::size_t connections_max = 16, request_bytes_max = 8192;
    static constexpr std::chrono::seconds time_max{10};

    /// Serves 127.0.0.1:`port` and the abstract Unix socket named after it. Throws DistNetworkError if it cannot listen
    /// there, DistBackendError if no thread can be started.
    HttpServer(std::uint16_t port, security::Secret token, HttpPages pages);
    /// Ends all open connections.
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

 private:
    enum class State {
        asking,    ///< waits for the client's request; a new client may replace it after a while
        busy,      ///< makes its page and sends it
        answered,  ///< waits for the client to close; a new client may replace it
        over       ///< its thread has ended, or is about to
    };
    struct Connection {
        UniqueFd fd{};
        Instant since = Clock::now();
        std::atomic<State> state{State::asking};
        std::thread thread{};
    };
    void accept();
    void admit(UniqueFd fd);
    void serve(Connection& connection);
    bool enter(Connection& connection, State state);
    std::string answer(const std::string& head) const;
    Connection* idle_one();
    bool make_room();
    void clear();

    const security::Secret token_;
    const HttpPages pages_;
    fork_guard::GuardedFd listener_, local_listener_;
    UniqueFd wake_;
    AbortFlag stop_;
    std::list<Connection> connections_;  // the accepting thread uses it
    std::thread thread_;
};

/// Asks the servers of several ports of this host for one page, all at once, over their Unix sockets. An answer has no
/// body if its server has not answered with 200 by the deadline, or has sent too much.
std::vector<HttpAnswer> http_get(const std::vector<std::uint16_t>& ports, const std::string& path,
                                 const security::Secret& token, const Deadline& deadline, const AbortFlag& stop);

}  // namespace tutti::record
