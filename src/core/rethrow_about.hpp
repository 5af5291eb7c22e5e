// Throws the error of one call again, as the error of another call that it also ends.
//
// Threads: any.
#pragma once

#include <tutti/error.hpp>

#include <exception>
#include <string_view>

namespace tutti {

/// Throws an error of the class and code of `cause`, about the same peer; its text is "`about`: " and that of `cause`,
/// its context is `context`. Throws `cause` itself where that is none of tutti's.
[[noreturn]] void rethrow_about(const std::exception_ptr& cause, std::string_view about, ErrorContext context);

}  // namespace tutti
