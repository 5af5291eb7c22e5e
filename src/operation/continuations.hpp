// Continuations: the users' code that runs when an operation completes. An operation completes with the group's lock
// held, where no code of users may run: so a thread of its own runs it.
//
// Threads: any. A group's continuations run in order, one at a time, with no lock held. Each group has its own thread,
// made on first use, which ends when there has been nothing to do for a while: groups do not wait for one another, so
// that ranks that are threads of one process may communicate in their continuations.
#pragma once

#include <functional>

namespace tutti::detail {

class Member;

/// `group` only names the queue. Signals are not delivered to the thread that runs it.
void run_later(const Member* group, std::function<void()> continuation);

}  // namespace tutti::detail
