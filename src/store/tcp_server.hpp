// TcpServer: the server of a TCP store, on libuv, in a thread of its own. The TCPStore object of the master process
// owns one; a launcher may host one without a client.
//
// Threads: any thread may create and destroy it; everything else runs on the loop's thread, so that each operation is
// atomic without a lock. A connection first proves the secret. Silent peers are dropped after handshake_timeout();
// unproved connections are bounded in number (the oldest is dropped first) and in memory.
#pragma once

#include "core/socket.hpp"
#include "core/unique_fd.hpp"
#include "security/secret.hpp"

#include <sys/types.h>

#include <cstdint>
#include <memory>

namespace tutti::store {

class TcpServer {
 public:
    /// Serves on `listener` (bound; listening or not) until destroyed. `share_secret`: gives the secret to processes of
    /// this user on this host that ask for it.
    TcpServer(UniqueFd listener, const security::Secret& secret, bool share_secret);
    ~TcpServer();
    TcpServer(const TcpServer&) = delete;
    TcpServer& operator=(const TcpServer&) = delete;

    std::uint16_t port() const noexcept { return address_.port; }
    const net::Address& address() const noexcept { return address_; }
    const security::Secret& secret() const noexcept { return secret_; }

 private:
    class Loop;
    net::Address address_;
    security::Secret secret_;
    pid_t owner_;
    std::unique_ptr<Loop> loop_;
};

}  // namespace tutti::store
