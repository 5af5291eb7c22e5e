// Task: a process to start: a rank, or ssh with the launcher of a node. A value.
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
        lifeline,  ///< a Lifeline: its end ends the task, its bytes are signals. The only signal sent to it is SIGKILL
    };
    std::string name;          ///< "rank 2", "spare 0", "node worker-1"
    int rank = -1;             ///< -1: it is a newcomer, or the launcher of a node
    int number = -1;           ///< TUTTI_LAUNCH_NUMBER, as the task's place among those of its attempt; -1: it has none
    int slot = 0;              ///< LOCAL_RANK
    bool is_newcomer = false;  ///< it is to join the job's ranks later
    std::string prefix;        ///< before each line; empty: its output is passed on unchanged
    std::vector<std::string> command;
    Environment environment;
    Input input = Input::nothing;
    std::string greeting{};            ///< written into the lifeline first
    std::string out_log{}, err_log{};  ///< files; empty: none
    bool shows_out = true, shows_err = true;
    bool reports_itself = false;  ///< it reports its failures itself, unless ssh fails
};

}  // namespace tutti::launch
