// Guard: a small process that outlives the launcher by a moment. If the launcher is killed (SIGKILL), the guard kills
// the process groups of the job, and all other processes with the job's variable in their environment (such as one that
// made its own session), so that no process of the job survives.
//
// Threads: create it before the launcher has any threads; otherwise from one thread.
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

    /// A random text that identifies the launcher.
    const std::string& id() const noexcept { return id_; }
    /// NAME=value for the environment of all processes of this launcher, and of no others.
    std::string variable() const { return "TUTTI_LAUNCHER=" + id_; }
    void watch(pid_t process_group);
    void forget(pid_t process_group);
    /// Whether a signal that came to the launcher has also come to the guard, or does within 50 ms. No sender knows of
    /// the guard, so the sender then signalled all processes of the job, as Slurm does. Clears the guard's signals.
    bool got(int signal);
    pid_t pid() const noexcept { return pid_; }

 private:
    void tell(pid_t message);
    const std::string id_;
    pid_t pid_ = -1;
    UniqueFd pipe_;
};

}  // namespace tutti::launch
