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
/// Both kinds, and SIGCHLD. Not a signal that this process has inherited as ignored (nohup, `&` in a script), so that
/// it stays ignored: if blocked, it would arrive.
sigset_t taken_signals();

}  // namespace tutti::launch
