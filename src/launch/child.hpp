// Child: one process of a job, in a process group of its own, with its output in pipes.
//
// Threads: the launcher's main thread only: a child is killed when the thread that started it ends (PR_SET_PDEATHSIG).
#pragma once

#include "core/unique_fd.hpp"
#include "launch/program.hpp"

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace tutti::launch {

/// NAME=value; of equal names the last one counts.
using Environment = std::vector<std::string>;
/// This process's environment with `changes` in place of equal names; a change without "=" removes its variable.
Environment environment_with(const Environment& changes);

struct Child {
    pid_t pid = -1;  ///< also its process group
    UniqueFd out, err;
    std::optional<NotStarted> not_started;  ///< the program could not be executed; the process is gone then
    std::optional<int> status;              ///< as waitpid(2) gives it; empty: it has not ended

    bool running() const noexcept { return pid > 0 && !status; }
    bool failed() const noexcept { return not_started || (status && *status != 0); }
};

/// Starts command[0] (looked up in PATH). `stdin_fd`: its standard input; -1: /dev/null. The child gets the resource
/// limits that this process was started with. Throws std::system_error if no process or descriptor is available.
Child start(const std::vector<std::string>& command, const Environment& environment, int stdin_fd);

/// The status, as of waitpid(2), of a process whose end waitid(2) has reported.
int status_of(const siginfo_t& info);
/// "exited with status 3", "killed by signal 9 (SIGKILL)", "could not be started: No such file or directory".
std::string cause_in_words(const Child& child);
/// The exit status that a shell would give: the child's status, or 128 + signal; 127 if there is no such program, 126
/// if it cannot be executed.
int exit_status(const Child& child);

}  // namespace tutti::launch
