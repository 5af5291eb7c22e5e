// The first steps of a launcher's process, after which each of its child processes belongs to its job.
//
// Threads: the main thread, before there are others.
#pragma once

#include <sys/types.h>

namespace tutti::launch {

/// No pipe of the launcher's may get the number of a standard stream that was closed; processes that lose their parent
/// become its children. A process that has children already (an entry script that started a helper and then became
/// this program by exec), or that gets those of strangers because it is the first of its container, leaves them to a
/// stand-in: it goes on as the child of one, which keeps its number, passes on signals, stops and ends as it does.
/// Returns in the process that launches.
void prepare_process();

/// The process that stands in for this one towards the process that started it; -1: none does.
pid_t init_process();

}  // namespace tutti::launch
