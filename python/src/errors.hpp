// Errors: tutti's exceptions as Python's, and waits that Ctrl-C ends.
//
// Threads: those that hold the interpreter's lock, unless said otherwise.
#pragma once

#include "python.hpp"

#include <exception>
#include <string>

namespace tutti::python {

/// Sets Python's error indicator to the exception's class of tutti.errors, or to the exception of Ctrl-C's handler.
void set_error(const std::exception_ptr& error);
/// The exception as an object; None for null.
nb::object exception_object(const std::exception_ptr& error);
/// A tutti.errors.InvalidArgument that is also a TypeError: an argument is of an unusable type.
[[noreturn]] void throw_type_error(const char* operation, const char* argument, nb::handle got, const char* expected);
/// "ndarray", "tutti.Work": for messages.
std::string class_name(nb::handle object);
/// "ValueError: no such row"; with the interpreter's lock.
std::string words_of(const nb::python_error& error);

/// Tells tutti that the calling thread is about to end the interpreter. Only daemon threads are left beside it: from
/// now on an error of tutti's ends such a thread without a word (SystemExit). Tracebacks of many at once, while the
/// interpreter takes itself down, can abort the process.
void end_daemon_threads();

void bind_errors(nb::module_& m);

}  // namespace tutti::python
