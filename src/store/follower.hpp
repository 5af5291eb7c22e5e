// Follower: a standby's two connections to its primary, one for each way, with a thread that reads. PROTOCOL.md says
// why they are two.
//
// Threads: take() and send() by the server's loop; a thread of its own reads.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/socket.hpp"
#include "security/secret.hpp"
#include "store/tcp_client.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace tutti::store {

class Follower {
 public:
    /// Connects, and tells the primary where the standby listens. Throws DistStoreError if the primary takes no
    /// standby.
    Follower(const net::Address& primary, const security::Secret& secret, std::uint16_t listens,
             const Deadline& deadline, const AbortFlag* abort);
    ~Follower();
    Follower(const Follower&) = delete;
    Follower& operator=(const Follower&) = delete;

    /// Ends the reading thread; no news come after it.
    void stop();
    /// Begins to read; calls `news` on the reading thread for each piece of input, and at the end.
    void start(std::function<void()> news);
    enum class State : std::uint8_t { open, ended, broken };
    /// Moves the input since the last call to `bytes`. `ended`: everything that the primary sent has arrived.
    State take(std::string& bytes);
    /// What cannot be sent is lost, and the connection's end is not one in order then.
    void send(std::string_view bytes);
    const net::Address& primary() const noexcept { return primary_; }

 private:
    void read();

    TcpClient hears_, speaks_;
    net::Address primary_;
    std::function<void()> news_;
    std::mutex mutex_;  // guards these two
    std::string input_;
    State state_ = State::open;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

/// Whether the host says that nobody listens there: the process that did has ended.
bool nobody_listens(const net::Address& address);

}  // namespace tutti::store
