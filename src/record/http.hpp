// HttpServer: a few pages over HTTP/1.1, for people and programs on this host that know a secret.
//
// Every request needs "Authorization: Bearer TOKEN", compared in constant time; there is no query for it, which would
// end up in histories and logs. It travels in the clear, and any process that listens at a port of this host may get
// it: so it is derived from the job's secret and does not reveal it (page_token). Only GET and HEAD; one request a
// connection. A client's cost is bounded: connections at once, bytes of a request, the time in which it must come and
// its answer go.
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

    /// Serves 127.0.0.1:`port`; throws DistNetworkError where it cannot be had, DistBackendError for want of threads.
    HttpServer(std::uint16_t port, security::Secret token, HttpPages pages);
    /// Ends the connections under way.
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

 private:
    struct Connection {
        std::thread thread;
        std::atomic<bool> over{false};
    };
    void accept();
    void serve(const UniqueFd& fd) const;
    std::string answer(const std::string& head) const;
    void clear();

    const security::Secret token_;
    const HttpPages pages_;
    fork_guard::GuardedFd listener_;
    UniqueFd wake_;
    AbortFlag stop_;
    std::list<Connection> connections_;  // the accepting thread's
    std::thread thread_;
};

/// Asks 127.0.0.1 for one page on several ports at once; those that have not answered with 200 by then have none.
std::vector<HttpAnswer> http_get(const std::vector<std::uint16_t>& ports, const std::string& path,
                                 const security::Secret& token, const Deadline& deadline, const AbortFlag& stop);

}  // namespace tutti::record
