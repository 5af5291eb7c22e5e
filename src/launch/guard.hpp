// Guard: a small process that outlives the launcher by a moment. When the launcher dies without a word (SIGKILL), it
// kills the process groups of the job, and all other processes that carry the job's variable in their environment (one
// that made a session of its own), so that no process of the job survives.
//
// Threads: made before the launcher has any; otherwise from one thread.
#pragma once

#include "core/unique_fd.hpp"

#include <sys/types.h>

#include <string>

namespace tutti::launch {

class Guard {
 public:
    Guard();
    /// Tells the guard that all is done and waits for its end.
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

    /// A random text.
    const std::string& id() const noexcept { return id_; }
    /// NAME=value that all processes of this launcher, and no others, are to be started with.
    std::string variable() const { return "TUTTI_LAUNCHER=" + id_; }
    void watch(pid_t process_group);
    void forget(pid_t process_group);
    /// Whether a signal to the launcher has also come, or comes within 50 ms, to the guard, a process that no sender
    /// knows of: then the sender sent it to all processes of the job, as Slurm does. Forgets it.
    bool got(int signal);
    pid_t pid() const noexcept { return pid_; }

 private:
    void tell(pid_t message);
    const std::string id_;
    pid_t pid_ = -1;
    UniqueFd pipe_;
};

}  // namespace tutti::launch
