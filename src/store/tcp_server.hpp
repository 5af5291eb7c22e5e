// TcpServer: the server of a TCP store, on libuv, in a thread of its own.
//
// Threads: constructed and destroyed by any thread; everything else happens on the loop's thread. A connection first
// proves the secret (handshake; silent peers are dropped after a time, and hold nobody up). Single-host jobs without a
// configured secret: the server makes one and hands it to processes of the same user over an abstract Unix socket.
#pragma once

#include "core/unique_fd.hpp"
#include "security/secret.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace tutti::store {

class TcpServer {
 public:
    /// Serves on `listener` (bound; made to listen if it does not). `share_secret`: hand the secret to local processes
    /// of this user that ask for it.
    TcpServer(UniqueFd listener, const security::Secret& secret, bool share_secret);
    ~TcpServer();
    TcpServer(const TcpServer&) = delete;
    TcpServer& operator=(const TcpServer&) = delete;
    std::uint16_t port() const noexcept;

 private:
    class Loop;
    std::unique_ptr<Loop> loop_;
};

}  // namespace tutti::store
