// Ctrl-C, and other signals with a handler in Python, while the main thread waits in an operation.
#pragma once

#include <exception>

namespace tutti::torch {

/// From now on waits of the main thread run Python's signal handlers at least every 100 ms; where one raises, the wait
/// ends. Called once, with the GIL, by the thread that imports the module.
void run_signal_handlers_in_waits();

/// Runs them now, if this is the main thread and the last time was some ms ago. True: one of them has raised. Without
/// the GIL.
bool check_signals() noexcept;

/// What the handler raised that ended the last wait, as an exception that Python sees unchanged (KeyboardInterrupt);
/// null if there was none. Once.
std::exception_ptr raised_by_signal();

}  // namespace tutti::torch
