// TcpServer: the server of a TCP store, on libuv, in a thread of its own. The TCPStore object of the master process
// owns one; a launcher may host one without a client.
//
// Threads: any thread may create and destroy it; everything else runs on the loop's thread, so that each operation is
// atomic without a lock. A connection first proves the secret. Silent peers are dropped after handshake_timeout();
// unproved connections are bounded in number (the oldest is dropped first) and in memory.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/socket.hpp"
#include "core/unique_fd.hpp"
#include "security/secret.hpp"
#include "store/succession.hpp"

#include <sys/types.h>

#include <cstdint>
#include <memory>

namespace tutti::store {

class Follower;

/// Whether a server has to do with a standby (standby.hpp).
enum class ServerKind : std::uint8_t { plain, with_standby, standby };

class TcpServer {
 public:
    /// Serves on `listener` (bound; listening or not) until destroyed. `share_secret`: gives the secret to processes of
    /// this user on this host that ask for it.
    TcpServer(UniqueFd listener, const security::Secret& secret, bool share_secret,
              ServerKind kind = ServerKind::plain);
    /// The standby of the server at `primary`. Returns when it has the whole contents.
    TcpServer(UniqueFd listener, const security::Secret& secret, bool share_secret, const net::Address& primary,
              const Deadline& deadline, const AbortFlag* abort);
    ~TcpServer();
    TcpServer(const TcpServer&) = delete;
    TcpServer& operator=(const TcpServer&) = delete;

    std::uint16_t port() const noexcept { return address_.port; }
    const net::Address& address() const noexcept { return address_; }
    const security::Secret& secret() const noexcept { return secret_; }
    /// Any thread. A server that takes no standby is alone.
    Succession::Role role() const;
    /// Any thread: the other server ends soon, as all does; that is no reason to warn of its loss.
    void expect_end();

 private:
    class Loop;
    void start(UniqueFd listener, bool share_secret, ServerKind kind, std::unique_ptr<Follower> follower);
    net::Address address_;
    security::Secret secret_;
    pid_t owner_;
    std::unique_ptr<Loop> loop_;
};

}  // namespace tutti::store
