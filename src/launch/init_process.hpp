// The first steps of a launcher's process, after which each of its child processes belongs to its job.
//
// Threads: the main thread, before there are others.
#pragma once

#include <sys/types.h>

namespace tutti::launch {

/// Opens closed standard streams, so that no pipe of the launcher gets their numbers, and makes the launcher the parent
/// of orphaned descendants. If the process already has children (an entry script started a helper and then called
/// exec), or adopts strangers' children as the first process of its container, it forks: only the child returns from
/// here, and launches; the original process stays as its stand-in: it keeps the pid, passes on signals, and stops and
/// ends as the child does.
void prepare_process();

/// The pid of the stand-in, which represents this process to the process that started it; -1: there is none.
pid_t init_process();

}  // namespace tutti::launch
