// HttpServer: a few pages over HTTP/1.1, for people and programs on this host that know a secret.
//
// Every request needs "Authorization: Bearer TOKEN", compared in constant time; there is no query for it, which would
// end up in histories and logs. It is derived from the job's secret and does not reveal it (page_token). Any process
// may listen at a port of this host: so a server listens at an abstract Unix socket as well, and http_get, which asks
// there, tells the token to processes of this user alone. Only GET and HEAD; one request a connection.
//
// A client's cost is bounded: connections at once, bytes of a request, the time in which it must come and its answer
// go. Where all connections are taken, a newcomer takes the place of the one that has said nothing for longest.
//
// Threads: one accepts, each connection has its own: a page that asks other processes holds up no other. These threads
// call the pages, several at once.
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

/// The token that reads a job's pages and allows nothing else.
security::Secret page_token(const security::Secret& job);

/// nullopt: there is no such page.
using HttpPages = std::function<std::optional<HttpPage>(const std::string& path, const AbortFlag& stop)>;

class HttpServer {
 public:
    static constexpr std::size_t connections_max = 16, request_bytes_max = 8192;
    static constexpr std::chrono::seconds time_max{10};

    /// Serves 127.0.0.1:`port` and the abstract Unix socket of that number; throws DistNetworkError where it cannot be
    /// had, DistBackendError for want of threads.
    HttpServer(std::uint16_t port, security::Secret token, HttpPages pages);
    /// Ends the connections under way.
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

 private:
    enum class State {
        asking,    ///< waits for the client's request, and may be ended for a newcomer after a while
        busy,      ///< makes its page and sends it
        answered,  ///< waits for the client to close, and may be ended for a newcomer
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
    std::list<Connection> connections_;  // the accepting thread's
    std::thread thread_;
};

/// Asks the servers of several ports of this host for one page at once, by their Unix sockets; those that have not
/// answered with 200 by then, or with more than they may, have none.
std::vector<HttpAnswer> http_get(const std::vector<std::uint16_t>& ports, const std::string& path,
                                 const security::Secret& token, const Deadline& deadline, const AbortFlag& stop);

}  // namespace tutti::record
