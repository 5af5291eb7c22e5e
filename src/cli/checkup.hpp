// Checkup: what tutti finds on this machine, what is missing, and what makes it slow.
//
// Threads: one; forks, so before any are started.
#pragma once

#include <string>
#include <vector>

namespace tutti::cli {

struct Finding {
    enum class Kind { good, slow, missing, broken } kind = Kind::good;
    std::string what, found;
    std::string hint{};      ///< what to do about it; empty when good
    std::string compared{};  ///< good: what it was compared with; empty where "found" says it
};

/// Tries out what can be tried: two ranks meet over shared memory and over TCP, at most five seconds each.
std::vector<Finding> checkup();

}  // namespace tutti::cli
