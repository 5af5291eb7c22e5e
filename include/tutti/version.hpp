// The version of the library.
#pragma once

#include <tutti/export.hpp>
#include <tutti/version.h>

namespace tutti {

/// "major.minor.patch" of the library that the program runs with.
TUTTI_API const char* version() noexcept;

}  // namespace tutti
