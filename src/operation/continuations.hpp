// Continuations: callbacks of users that run when an operation completes. An operation completes with the world's lock
// held, under which no user code may run; so a separate thread runs them.
//
// Threads: any. The continuations of a group run in order, one at a time, with no lock held. Each group has its own
// thread, created on first use, which ends after a second without work. Groups do not wait for one another, so ranks
// that are threads of one process may communicate in their continuations.
#pragma once

#include <functional>

namespace tutti::detail {

class Member;

/// `group` only identifies the queue, and is not dereferenced. The thread that runs it blocks all signals.
void run_later(const Member* group, std::function<void()> continuation);

}  // namespace tutti::detail
