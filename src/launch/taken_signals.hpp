// The signals that a launcher takes, and what each one does. The launcher itself (signals.hpp) and its stand-in
// (init_process.hpp) both use these functions.
//
// Threads: any.
#pragma once

#include <signal.h>

namespace tutti::launch {

/// Whether the signal ends the job, however the ranks handle it.
bool ends_job(int signal);
/// Whether the signal is passed to the ranks; the job continues unless they end.
bool is_for_ranks(int signal);
/// The signals of both kinds, and SIGCHLD, without those that this process has inherited as ignored (nohup, `&` in a
/// script): a blocked signal arrives even if it is ignored.
sigset_t taken_signals();

}  // namespace tutti::launch
