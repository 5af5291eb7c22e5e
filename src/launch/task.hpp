// Task: a process to start: a rank, or over ssh the launcher of a node. A value.
#pragma once

#include "launch/child.hpp"

#include <string>
#include <vector>

namespace tutti::launch {

struct Task {
    enum class Input {
        nothing,
        ours,      ///< the launcher's standard input
        terminal,  ///< lines typed at the launcher's standard input, a terminal
        lifeline,  ///< a pipe whose end means: end, and whose bytes are signals. None goes to the task before SIGKILL
    };
    std::string name;    ///< "rank 2", "node worker-1"
    int rank = -1;       ///< -1: it is a launcher
    std::string prefix;  ///< before each line; empty: its output is passed on unchanged
    std::vector<std::string> command;
    Environment environment;
    Input input = Input::nothing;
    std::string greeting{};            ///< written into the lifeline first
    std::string out_log{}, err_log{};  ///< files; empty: none
    bool shows_out = true, shows_err = true;
    bool reports_itself = false;  ///< when it fails, all has been said unless ssh says so
};

}  // namespace tutti::launch
