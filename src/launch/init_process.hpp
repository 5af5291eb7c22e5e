// The first steps of a launcher's process, after which each of its child processes belongs to its job.
//
// Threads: the main thread, before there are others.
#pragma once

#include <sys/types.h>

namespace tutti::launch {

/// Opens standard streams that were closed, so that no pipe of the launcher gets their numbers, and makes the launcher
/// the parent of processes that lose theirs. A process that already has children (an entry script that started a helper
/// and then called exec), or that gets strangers' as the first process of its container, forks: the child launches, and
/// returns from here; the original process stays as its stand-in: it keeps the pid, passes on signals, stops and ends
/// as the child does.
void prepare_process();

/// The process that stands in for this one towards the process that started it; -1: none does.
pid_t init_process();

}  // namespace tutti::launch
