// Posts: the requests of a client that its server does not answer (Op::post): whether one may go now, and the pipe that
// they take on the server's own host (see PROTOCOL.md).
//
// Posts must not pile up for a server that is dead or stopped: they go only while the server has been heard less than
// 50 ms and 256 posts ago. A post in the pipe may overtake requests in the socket: one that this client has given up
// may still lie there, so the pipe takes nothing until an answer shows that the server has read so far.
//
// Threads: may_go(), heard() and count() by any thread; everything else under the client's lock, or before other
// threads use it.
#pragma once

#include "core/deadline.hpp"
#include "core/fork_guard.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace tutti::store {

class Posts {
 public:
    using Moment = std::chrono::nanoseconds;  // of a steady clock
    /// To a few milliseconds, and cheap.
    static Moment coarse_now() noexcept;

    bool may_go(Moment now) const noexcept;
    /// The server has sent something.
    void heard(Moment now) noexcept;
    /// A post has gone by the socket.
    void count() noexcept { since_heard_.fetch_add(1, std::memory_order_relaxed); }

    /// Asks at the server's local door. Throws when the door does not answer as it should. The server may have no pipe
    /// to give: then posts take the socket.
    void open_pipe(int door, const Deadline& limit);
    bool has_pipe() const noexcept { return static_cast<bool>(pipe_); }
    /// Whether a post of so many bytes may go by the pipe.
    bool pipe_takes(std::uint64_t bytes) const noexcept;
    /// All of it, counted, or nothing (false): there is no room.
    bool write(std::string_view post) noexcept;
    /// How many have gone by the pipe.
    std::uint32_t written() const noexcept { return written_; }

    /// Requests have rising numbers.
    void note_answered(std::uint64_t request) noexcept { answered_ = std::max(answered_, request); }
    void note_given_up(std::uint64_t request) noexcept { given_up_ = std::max(given_up_, request); }

 private:
    fork_guard::GuardedFd pipe_;
    std::uint32_t written_ = 0;
    std::uint64_t given_up_ = 0, answered_ = 0;  // the newest requests

    std::atomic<Moment::rep> heard_at_ns_{0};
    std::atomic<int> since_heard_{0};
};

}  // namespace tutti::store
