// The signals that a launcher takes, and what becomes of each. The launcher itself (signals.hpp) and the process that
// stands in for it (init_process.hpp) agree on them.
//
// Threads: any.
#pragma once

#include <signal.h>

namespace tutti::launch {

/// Whether the job ends by it, however its ranks take it.
bool ends_job(int signal);
/// Whether the ranks get it, and the job goes on as far as they do.
bool is_for_ranks(int signal);
/// Both, and SIGCHLD. A signal that our parent has us ignore is not among them, so that it stays ignored (nohup, `&` in
/// a script): blocked, it would arrive.
sigset_t taken_signals();

}  // namespace tutti::launch
