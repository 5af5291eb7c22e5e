// tutti's changes to its host beside its own memory and connections, as the environment has them: four settings, each
// left alone or described.
//
// Threads: any.
#pragma once

#include "cli/finding.hpp"

#include <vector>

namespace tutti::cli {

/// Throws InvalidArgument where a variable has a wrong value.
std::vector<Finding> host_settings();

}  // namespace tutti::cli
