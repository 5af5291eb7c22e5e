// Ctrl-C, and other signals with a handler in Python, while the main thread waits in an operation.
#pragma once

#include <exception>

namespace tutti::torch {

/// From now on waits of the main thread run Python's signal handlers at least every 100 ms; if one raises, the wait
/// ends. The thread that imports the module calls this once, with the GIL.
void run_signal_handlers_in_waits();

/// Runs them now, if this is the main thread and the last run was some ms ago. Returns true if one of them has raised.
/// Call it without the GIL.
bool check_signals() noexcept;

/// Ends a wait in `operation` of a store, with Aborted (code interrupted), if check_signals().
void raise_signal(const char* operation);

/// Returns, once, the exception of the handler that ended the last wait, which reaches Python unchanged
/// (KeyboardInterrupt); null if there was none.
std::exception_ptr raised_by_signal();

}  // namespace tutti::torch
