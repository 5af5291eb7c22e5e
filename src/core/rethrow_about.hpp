// Rethrows the error of one call as the error of another call that fails because of it.
//
// Threads: any.
#pragma once

#include <tutti/error.hpp>

#include <exception>
#include <string_view>

namespace tutti {

/// Throws an error with the class, code and peer of `cause`, with the text "`about`: " followed by the text of `cause`,
/// and with `context`. Throws `cause` itself if it is not one of tutti's errors.
[[noreturn]] void rethrow_about(const std::exception_ptr& cause, std::string_view about, ErrorContext context);

}  // namespace tutti
