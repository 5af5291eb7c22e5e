// Lateness: how long the ranks of a world waited for each other in the collectives that their dumps have in common,
// from each rank's call to the last call that it had to wait for.
//
// Threads: free functions.
#pragma once

#include "record/timeline.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::record {

struct Lateness {
    int rank = 0;             ///< of the group
    double caused_s = 0;      ///< the others waited for it, all of them together
    double waited_s = 0;      ///< it waited for others
    std::size_t awaited = 0;  ///< collectives in which others waited for it
};
struct LatenessByRank {
    std::size_t collectives = 0;    ///< that count
    std::vector<Lateness> ranks{};  ///< of those with a dump; the one first for which the others waited longest
};
LatenessByRank lateness_of(const WorldTimeline& world);

/// A table of the first ranks of them; empty where the dumps have no collective in common.
std::string lateness_table(const WorldTimeline& world);

}  // namespace tutti::record
