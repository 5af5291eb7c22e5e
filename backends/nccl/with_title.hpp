// Turns errors of the host group into errors of the operation that it served.
#pragma once

#include <exception>
#include <string>

namespace tutti::nccl {

/// The same kind of error, with its context: "TITLE: WHAT: …". An error that has the title already remains as it is.
std::exception_ptr with_title(const std::string& title, const std::string& what, const std::exception_ptr& error);
std::string text_of(const std::exception_ptr& error);

}  // namespace tutti::nccl
