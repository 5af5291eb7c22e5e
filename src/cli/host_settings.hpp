// Findings about four settings by which tutti affects its host beyond its own memory and connections, as the
// environment sets them.
//
// Threads: any.
#pragma once

#include "cli/finding.hpp"

#include <vector>

namespace tutti::cli {

/// Throws InvalidArgument where a variable has a wrong value.
std::vector<Finding> host_settings();

}  // namespace tutti::cli
