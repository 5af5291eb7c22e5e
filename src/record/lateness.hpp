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
    int rank = 0;             ///< in the group
    double caused_s = 0;      ///< how long others waited for it, summed over them
    double waited_s = 0;      ///< how long it waited for others
    std::size_t awaited = 0;  ///< collectives in which others waited for it
};
struct LatenessByRank {
    std::size_t collectives = 0;    ///< the number that all these ranks have recorded
    std::vector<Lateness> ranks{};  ///< ranks with a dump, by caused_s, largest first
};
LatenessByRank lateness_of(const WorldTimeline& world);

/// A table of the ranks that caused the longest waits; empty if the dumps have no collective in common.
std::string lateness_table(const WorldTimeline& world);

}  // namespace tutti::record
