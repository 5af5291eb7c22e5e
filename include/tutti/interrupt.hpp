// Ctrl-C and waiting.
//
// With SIGINT's default action a Ctrl-C ends the process and every wait with it. A program that wants an
// exception instead keeps an InterruptHandler, or calls interrupt() from its own handler: one wait of tutti, in
// progress or the next to begin, then ends within 100 ms with Aborted, code interrupted.
#pragma once

#include <tutti/export.hpp>

namespace tutti {

/// While an InterruptHandler lives, SIGINT makes waits throw; its destructor restores the previous action. Make at most
/// one at a time. If a second Ctrl-C arrives before any wait has noticed the first, the previous action handles it.
class TUTTI_API InterruptHandler {
 public:
    InterruptHandler();
    ~InterruptHandler();
    InterruptHandler(const InterruptHandler&) = delete;
    InterruptHandler& operator=(const InterruptHandler&) = delete;
};

/// Requests an interrupt: the first wait that notices it, on any thread, throws Aborted. Async-signal-safe; any thread.
TUTTI_API void interrupt() noexcept;

/// For languages that handle signals themselves: waiting threads call `check` at least every 100 ms, with no lock of a
/// group held; if it returns true the wait throws Aborted, code interrupted. Null: no check. Any thread.
TUTTI_API void set_interrupt_check(bool (*check)() noexcept) noexcept;

/// For a store of your own: its waits call this at least every 100 ms, so that the log says what tutti waits for when a
/// wait takes long (first after 5 s, then less and less often). Any thread.
TUTTI_API void still_waiting() noexcept;

}  // namespace tutti
