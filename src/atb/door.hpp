// Door: lets the processes of one host find each other by a name. Its opener serves a store on any free port, and
// tells the port to each process of its user that knocks. A door is an abstract Unix socket: it is in no file system,
// and vanishes when its process ends in any way.
//
// Threads: a door has a thread of its own, which answers; open and close it from one thread. knock() may be called from
// any thread.
#pragma once

#include "core/deadline.hpp"
#include "core/fork_guard.hpp"
#include "core/thread.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tutti::atb {

/// What a process that knocks learns about the meeting.
struct Behind {
    std::uint64_t meeting = 0;  ///< unique for each opening of a door
    std::uint16_t port = 0;     ///< port of a store on 127.0.0.1
};

class Door {
 public:
    /// Opens the door under all of these names. Throws Error (ERROR_INVALID_PARAM) that names the process that has
    /// already opened it; DistNetworkError if the system has no such sockets.
    Door(const std::vector<std::string>& names, std::uint16_t port);
    ~Door();
    Door(const Door&) = delete;
    Door& operator=(const Door&) = delete;

 private:
    void answer();

    Behind behind_;
    std::vector<fork_guard::GuardedFd> listeners_;
    std::atomic<bool> closing_{false};
    std::optional<thread::Joined> thread_;
};

/// Knocks at the doors of these names until a process of this user has opened one to a meeting for which `is_new` is
/// true; returns that meeting. `awaited` completes "still waiting for". Throws Timeout.
Behind knock(const std::vector<std::string>& names, const std::function<bool(std::uint64_t meeting)>& is_new,
             const std::function<std::string()>& awaited, const Deadline& deadline);

}  // namespace tutti::atb
