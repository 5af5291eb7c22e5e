// Interrupts: they end a wait, as its deadline does.
//
// Threads: everything here may be called from any thread; request_interrupt() also from a signal handler.
// A wait looks at both flags at least every wait_slice.
#pragma once

#include "core/deadline.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

namespace tutti {

/// No wait sleeps in the kernel for longer than this without looking at its flags.
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
/// Forgets a request; done by the code that reports it.
void clear_interrupt() noexcept;

/// Throws Timeout, Aborted (flag, may be null) or Aborted{interrupted}, naming `operation`; otherwise returns. A wait
/// that takes long says then what it is for (core/patience.hpp).
void check_wait(const Deadline& deadline, const AbortFlag* abort, const char* operation);

}  // namespace tutti
