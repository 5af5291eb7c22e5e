// Signals: while an object lives, the signals that a launcher takes arrive at its descriptor: SIGINT, SIGTERM and
// SIGHUP end the job; SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT and SIGWINCH go to the ranks; SIGCHLD is the
// launcher's own. Threads: the main thread, before there are others (they inherit the mask).
#pragma once

#include "core/assert.hpp"
#include "core/unique_fd.hpp"

#include <signal.h>

#include <array>
#include <chrono>

namespace tutti::launch {

/// Stops this process as an unhandled SIGTSTP does. Returns true when the process has been continued; false at once if
/// nobody could continue it, as it is no shell's job.
bool stop_this_process();

class Signals {
 public:
    Signals();
    /// Restores the signal mask.
    ~Signals();
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;

    int fd() const noexcept { return fd_.get(); }
    /// The next pending signal; 0: none.
    int next();

 private:
    bool came_twice(int signal, pid_t sender);

    struct Last {
        std::chrono::steady_clock::time_point at{};
        bool relayed = false;
    };
    UniqueFd fd_;
    sigset_t before_{};
    void (*pipe_before_)(int) = SIG_DFL;  // of SIGPIPE, and below of SIGXFSZ: write(2) returns these errors
    void (*size_before_)(int) = SIG_DFL;
    std::array<Last, 65> last_{};
};

/// The connection to the launcher that started this one over ssh: standard input. A byte from 129 on is a signal for
/// the ranks, other bytes mean nothing; the end of input ends the job.
class Lifeline {
 public:
    /// The byte that the other launcher writes for a signal.
    static constexpr unsigned char byte_of(int signal) {
        TUTTI_ASSERT(signal >= 0 && signal < 128);
        return static_cast<unsigned char>(128 + signal);
    }

    explicit Lifeline(bool wanted) : open_(wanted) {}
    bool open() const noexcept { return open_; }
    /// The next signal that has come, SIGHUP at the end of input; 0: none.
    int next();

 private:
    bool open_;
};

}  // namespace tutti::launch
