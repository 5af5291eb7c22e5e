// Stacks: the current stacks of this process's threads, as text. They also show a thread that hangs outside the
// library, holds a lock, or loops.
//
// Each thread records its own stack, in the handler of a signal sent to it alone. This is a real-time signal that the
// program does not handle; the handler stays installed after the first use, so a late signal does no harm. As with any
// signal, a system call in which the thread waits may return early (EINTR), so threads are asked only when somebody
// requests stacks. Threads that block the signal are left alone, as are all of the library's own.
//
// Threads: any; one request at a time is served.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace tutti::record {

/// The stacks as text, thread by thread, innermost function first; a thread that does not answer is named. Takes little
/// longer than `patience`.
std::string stacks_of_threads(std::chrono::milliseconds patience);

/// A binding to another language adds its stacks with this function, which must return within `patience` and must not
/// throw. Empty: no such stacks.
void set_stack_source(std::function<std::string(std::chrono::milliseconds patience)> source);

}  // namespace tutti::record
