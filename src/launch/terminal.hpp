// Terminal: the launcher's terminal as the standard input of one rank. Ranks have process groups of their own, which
// get no input from the terminal (SIGTTIN stops a background process that reads it). So the launcher reads lines while
// it is in the foreground, and the rank gets them from a pseudo-terminal or, if there is none, from a pipe.
//
// Threads: from one thread.
#pragma once

#include "core/unique_fd.hpp"

#include <string>

namespace tutti::launch {

class Terminal {
 public:
    /// Standard input must be a terminal. Throws std::system_error if no descriptors are available.
    Terminal();

    /// The rank's end; close it once the rank has started.
    UniqueFd& side() noexcept { return side_; }
    /// The descriptor to wait for: standard input, or the rank's end until it has room; -1: none now, so call it again
    /// soon.
    int fd() const;
    short events() const noexcept;
    bool open() const noexcept { return static_cast<bool>(main_); }
    /// Passes on the available input. True: this input ended a line, also on the screen.
    bool pass_on();
    /// The window has changed its size.
    void resize();

 private:
    bool read_line();

    UniqueFd main_, side_;
    bool is_terminal_ = true;
    std::string waiting_;  // read, but not written to the rank yet
};

}  // namespace tutti::launch
