// Errors: tutti's exceptions as Python's, and waits that Ctrl-C ends.
//
// Threads: those that hold the interpreter's lock, unless said otherwise.
#pragma once

#include "python.hpp"

#include <exception>
#include <string>

namespace tutti::python {

/// Sets Python's error indicator to the exception's class of tutti.errors, or to what Ctrl-C's handler raised.
void set_error(const std::exception_ptr& error);
/// The exception as an object; None for null.
nb::object exception_object(const std::exception_ptr& error);
/// A tutti.errors.InvalidArgument that is also a TypeError: an argument is of a type that cannot be used.
[[noreturn]] void throw_type_error(const char* operation, const char* argument, nb::handle got, const char* expected);
/// "ndarray", "tutti.Work": for messages.
std::string class_name(nb::handle object);

/// The interpreter is about to end, which the calling thread sees to. Only daemon threads are left beside it: from now
/// on an error of tutti's ends such a thread without a word (SystemExit). Tracebacks of many at once, while the
/// interpreter takes itself down, can abort the process.
void end_daemon_threads();

void bind_errors(nb::module_& m);

}  // namespace tutti::python
