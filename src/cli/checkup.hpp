// Checkup: tutti's findings on this machine: the parts that work, the missing ones, and the causes of slowness.
//
// Threads: one. It forks, so call it before starting any threads.
#pragma once

#include "cli/finding.hpp"

#include <vector>

namespace tutti::cli {

/// Tries both transports: two ranks meet over shared memory and over TCP, at most five seconds each.
std::vector<Finding> checkup();

}  // namespace tutti::cli
