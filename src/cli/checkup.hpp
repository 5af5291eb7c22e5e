// Checkup: tutti's findings on this machine: the parts that work, the missing ones, and the causes of slowness.
//
// Threads: one; forks, so before any are started.
#pragma once

#include <string>
#include <vector>

namespace tutti::cli {

struct Finding {
    enum class Kind { good, slow, missing, broken } kind = Kind::good;
    std::string what, found;
    std::string hint{};      ///< the remedy; empty when good
    std::string compared{};  ///< good: the value it was compared with; empty where "found" says it
};

/// Tries both transports: two ranks meet over shared memory and over TCP, at most five seconds each.
std::vector<Finding> checkup();

}  // namespace tutti::cli
