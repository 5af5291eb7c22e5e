// Interrupts: flags that end a wait before its deadline.
//
// Threads: everything here may be called from any thread; request_interrupt() also from a signal handler.
// Every wait checks both flags at least every wait_slice.
#pragma once

#include "core/deadline.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

namespace tutti {

/// The longest time that a wait sleeps in the kernel between two checks of its flags.
inline constexpr std::chrono::milliseconds wait_slice{50};

/// The flag that another thread raises to end the waits of one owner (a group, a store client).
class AbortFlag {
 public:
    void raise(std::string reason);
    bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
    std::string reason() const;

 private:
    mutable std::mutex mutex_;
    std::string reason_;
    std::atomic<bool> raised_{false};
};

/// Whether a signal asked this process to stop waiting, or set_interrupt_check()'s function asks this thread to.
bool interrupt_requested() noexcept;
/// Async-signal-safe.
void request_interrupt() noexcept;
/// Forgets a request; the code that reports the request calls this.
void clear_interrupt() noexcept;

/// Throws Aborted if `abort` (may be null) is raised, Aborted with code interrupted after a request, or Timeout at the
/// deadline; the error names `operation`. Otherwise it returns, and logs a long wait (core/patience.hpp).
void check_wait(const Deadline& deadline, const AbortFlag* abort, const char* operation);

}  // namespace tutti
