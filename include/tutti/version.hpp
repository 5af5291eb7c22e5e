// The version of the library.
#pragma once

#include <tutti/version.h>
#include <tutti/export.hpp>

namespace tutti {

/// "major.minor.patch" of the library that the program runs with.
TUTTI_API const char* version() noexcept;

}  // namespace tutti
