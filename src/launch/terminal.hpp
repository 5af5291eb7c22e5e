// Terminal: the launcher's terminal as the standard input of one rank. Ranks are process groups of their own, to which
// the terminal gives no input (SIGTTIN stops a process that reads it from the background); so the launcher reads lines
// as long as it is in the foreground, and the rank gets them from a pseudo-terminal, or from a pipe where there is none
// to be had.
//
// Threads: from one thread.
#pragma once

#include "core/unique_fd.hpp"

#include <string>

namespace tutti::launch {

class Terminal {
 public:
    /// Standard input is a terminal. Throws std::system_error when there are no descriptors.
    Terminal();

    /// The rank's end; let go when it has started.
    UniqueFd& side() noexcept { return side_; }
    /// The descriptor to wait for: standard input, or the rank's end when it has room; -1: nothing at the moment, so
    /// look again soon.
    int fd() const;
    short events() const noexcept;
    bool open() const noexcept { return static_cast<bool>(main_); }
    /// Passes on the available input. True: with it a line has ended, on the screen too.
    bool pass_on();
    /// The window has another size.
    void resize();

 private:
    bool read_line();

    UniqueFd main_, side_;
    bool is_terminal_ = true;
    std::string waiting_;  // has been read, and not been taken yet
};

}  // namespace tutti::launch
