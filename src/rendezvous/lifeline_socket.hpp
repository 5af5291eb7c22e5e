// LifelineSocket: the operating system's part of a lifeline (a connection between neighbours in the tree): the socket,
// and other signs that the process at the other end has ended.
//
// Threads: receive() and has_process_ended() by one thread; the rest under a lock of the caller's.
#pragma once

#include "core/deadline.hpp"
#include "core/fork_guard.hpp"
#include "core/unique_fd.hpp"
#include "rendezvous/lifelines.hpp"
#include "rendezvous/pulse.hpp"
#include "rendezvous/roster.hpp"
#include "security/wire.hpp"

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::rendezvous {

class LifelineSocket {
 public:
    /// A lifeline to rank `rank`. That rank's host counts as lost when it has not answered for `silence_limit`.
    LifelineSocket(security::Connection connection, const Roster& roster, int rank,
                   std::chrono::milliseconds silence_limit);

    int rank() const noexcept { return rank_; }
    /// Never waits: news is short and rare; a neighbour with a full socket has stopped, and its silence shows that.
    void send(std::span<const std::byte> bytes);
    void end_sending();

    struct Input {
        std::size_t bytes = 0;
        std::optional<LineEnd::How> end{};
    };
    /// The next arrival: bytes, or the end, or nothing (more) yet.
    Input receive(std::span<std::byte> into);
    /// TLS's error message about altered bytes.
    std::string fault() const { return wire_.error(); }
    /// Whether the process at the other end has ended; what it sent before may still be in the connection.
    bool has_process_ended(Instant now);
    void pollables(std::vector<pollfd>& into) const;

 private:
    int rank_;
    bool is_near_;
    fork_guard::GuardedFd fd_;  // a forked child that inherited it would hide this rank's death
    security::Wire wire_;
    UniqueFd process_;                 // a pidfd, for a rank of this host: readable when it has ended
    std::optional<PulseWatch> pulse_;  // for a rank whose process this rank cannot watch
    std::atomic<int> send_error_{0};   // kept, since the kernel reports it only once
};

}  // namespace tutti::rendezvous
