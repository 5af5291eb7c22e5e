// Posts: a client's requests that the server does not answer (Op::post). The class decides whether a post may be sent
// now, and owns the pipe for posts to a server on the client's own host (see PROTOCOL.md).
//
// Posts must not pile up for a server that is dead or stopped: they are sent only while the server's last message is
// less than 50 ms and 256 posts old. A post in the pipe may overtake requests in the socket, even one that this client
// no longer waits for. So after the client has given up a request, no post uses the pipe until an answer shows that the
// server has read this request.
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
    /// The time, with a resolution of a few ms; cheap.
    static Moment coarse_now() noexcept;

    bool may_go(Moment now) const noexcept;
    /// The server has sent something.
    void heard(Moment now) noexcept;
    /// A post has been written to the socket.
    void count() noexcept { since_heard_.fetch_add(1, std::memory_order_relaxed); }

    /// Asks for the pipe at the server's local door. Throws if the answer violates the protocol. If the server has no
    /// pipe to give, posts use the socket.
    void open_pipe(int door, const Deadline& limit);
    bool has_pipe() const noexcept { return static_cast<bool>(pipe_); }
    /// Whether a post of this many bytes may use the pipe.
    bool pipe_takes(std::uint64_t bytes) const noexcept;
    /// Writes and counts the whole post, or writes nothing and returns false if there is no room.
    bool write(std::string_view post) noexcept;
    /// The number of posts written to the pipe.
    std::uint32_t written() const noexcept { return written_; }

    /// For these two: request numbers ascend.
    void note_answered(std::uint64_t request) noexcept { answered_ = std::max(answered_, request); }
    void note_given_up(std::uint64_t request) noexcept { given_up_ = std::max(given_up_, request); }

 private:
    fork_guard::GuardedFd pipe_;
    std::uint32_t written_ = 0;
    std::uint64_t given_up_ = 0, answered_ = 0;  // the newest request of each kind

    std::atomic<Moment::rep> heard_at_ns_{0};
    std::atomic<int> since_heard_{0};
};

}  // namespace tutti::store
