// Stacks: where the threads of this process are now, for people: also where one hangs in a call that is none of the
// library's, holds a lock, or loops.
//
// A thread tells its own stack, in the handler of a signal that is sent to it alone. The signal is one of real time
// that the program does not handle; its handler stays from the first look on, so a late signal does no harm. As with
// any signal, a system call in which the thread waits may return early (EINTR): so threads are asked only when somebody
// looks. Threads that block the signal are left alone: all of the library's own do.
//
// Threads: any; one looks at a time.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace tutti::record {

/// In words, thread by thread, from the innermost function out; a thread that gives no answer is named. Takes little
/// longer than the patience.
std::string stacks_of_threads(std::chrono::milliseconds patience);

/// A binding to another language adds its own stacks by this function, which must return within the patience and not
/// throw. Empty: it adds none.
void set_stack_source(std::function<std::string(std::chrono::milliseconds patience)> source);

}  // namespace tutti::record
