// Signals: SIGINT, SIGTERM, SIGHUP and SIGCHLD arrive at a descriptor while one lives. Threads: the main thread, before
// there are others (they inherit the mask).
#pragma once

#include "core/unique_fd.hpp"

#include <signal.h>

namespace tutti::launch {

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
    UniqueFd fd_;
    sigset_t before_{};
    void (*pipe_before_)(int) = SIG_DFL;
};

/// What a launcher does before anything else: no pipe of its own may get the number of a standard stream that was
/// closed, and processes that lose their parent become its children.
void prepare_process();

}  // namespace tutti::launch
