// LifelineSocket: a lifeline as the system has it: the connection, and whatever else tells of the end of the process at
// its other end.
//
// Threads: one that receives and looks; send() and the rest under a lock of the caller's.
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
    /// To rank `rank`; its host counts as lost when it has not answered for `silence_limit`.
    LifelineSocket(security::Connection connection, const Roster& roster, int rank,
                   std::chrono::milliseconds silence_limit);

    int rank() const noexcept { return rank_; }
    /// News are few and short; a neighbour whose socket is full has stopped, and will be noticed otherwise.
    void send(std::span<const std::byte> bytes);
    void end_sending();

    struct Input {
        std::size_t bytes = 0;
        std::optional<LineEnd::How> end{};
    };
    /// The next arrival: bytes, or the end, or nothing (more) yet.
    Input receive(std::span<std::byte> into);
    /// TLS's words about bytes that were altered.
    std::string fault() const { return wire_.error(); }
    /// Whether the process at the other end has ended; what it sent before may still be in the connection.
    bool has_process_ended(Instant now);
    void pollables(std::vector<pollfd>& into) const;

 private:
    int rank_;
    bool is_near_;
    fork_guard::GuardedFd fd_;  // a child that kept it would hide this rank's death
    security::Wire wire_;
    UniqueFd process_;                 // of a rank of this host: readable when it has ended
    std::optional<PulseWatch> pulse_;  // of a rank whose process is not visible
    std::atomic<int> send_error_{0};   // the kernel tells it once
};

}  // namespace tutti::rendezvous
