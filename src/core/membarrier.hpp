// membarrier(2): one thread issues a memory fence on behalf of other threads, which then need none of their own.
//
// A process registers with the kernel once. This takes microseconds while it has one thread; with more threads the
// kernel waits until every CPU has been through its scheduler, 10 to 20 ms for each kind of fence. So in a process of
// several threads a background thread registers, and until it is done every thread issues its own fences.
// Threads: any.
#pragma once

#include <functional>

namespace tutti::membarrier {

/// Registers this process, if it has not registered yet.
void request();
/// Whether fence_own_process() may be called: the registration is done.
bool has_own() noexcept;
/// Makes every running thread of this process execute a full memory fence. Precondition: has_own().
void fence_own_process() noexcept;
/// Registers this process as a target of other processes' fence_all_processes(), then runs `then`, in this call or in
/// another thread; never runs it if the kernel cannot register.
void when_global(std::function<void()> then);
/// Makes every running thread of all processes that when_global() registered execute a full memory fence.
void fence_all_processes() noexcept;

}  // namespace tutti::membarrier
