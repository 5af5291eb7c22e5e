// Signals: those that a launcher takes arrive at a descriptor while one lives: SIGINT, SIGTERM and SIGHUP end the job,
// SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT and SIGWINCH are for the ranks, SIGCHLD is for the launcher itself.
// Threads: the main thread, before there are others (they inherit the mask).
#pragma once

#include "core/assert.hpp"
#include "core/unique_fd.hpp"

#include <signal.h>

#include <array>
#include <chrono>

namespace tutti::launch {

/// As SIGTSTP stops a process that does not handle it. Returns true when it has been continued; false at once where
/// nobody could continue it: no shell has it as a job.
bool stop_this_process();

class Signals {
 public:
    Signals();
    /// Puts the mask back.
    ~Signals();
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;

    int fd() const noexcept { return fd_.get(); }
    /// The next one that waits; 0: none.
    int next();

 private:
    bool came_twice(int signal, pid_t sender);

    struct Last {
        std::chrono::steady_clock::time_point at{};
        bool relayed = false;
    };
    UniqueFd fd_;
    sigset_t before_{};
    void (*pipe_before_)(int) = SIG_DFL;  // of SIGPIPE and, below, SIGXFSZ: write(2) says what is the matter
    void (*size_before_)(int) = SIG_DFL;
    std::array<Last, 65> last_{};
};

/// The other end of a launcher that started this one over ssh: standard input. A byte from 129 on is a signal for the
/// ranks, other bytes mean nothing; its end ends the job.
class Lifeline {
 public:
    /// The byte for a signal that the launcher at the other end writes.
    static constexpr unsigned char byte_of(int signal) {
        TUTTI_ASSERT(signal >= 0 && signal < 128);
        return static_cast<unsigned char>(128 + signal);
    }

    explicit Lifeline(bool wanted) : open_(wanted) {}
    bool open() const noexcept { return open_; }
    /// The next signal that has come, SIGHUP at its end; 0: none.
    int next();

 private:
    bool open_;
};

}  // namespace tutti::launch
