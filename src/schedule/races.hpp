// Races of schedules in place: two ranks touch the same elements of one rank's buffers, one of them writes, and nothing
// says which of them comes first.
//
// One step comes before another by program order of the steps that share memory, by `after`, by `meet` (all ranks'
// beginnings come before its end), and by release and settle. Before a rank's first step,
// and after its last one, its caller owns its buffers and may write anywhere. A pure function.
#pragma once

#include "schedule/schedule.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::schedule {

struct Race {
    Rank rank;
    std::size_t step;
    std::string what;
};

/// At most one race of each rank's buffers, and the chunks that one rank touches of another's without leave (`meet`).
/// Empty for schedules that are not in place.
std::vector<Race> races_in(const std::vector<Schedule>& schedules);

/// The chunk that others mean when they name a chunk of `owner`'s buffers.
Chunk at_owner(const std::vector<Schedule>& schedules, Rank owner, Chunk chunk);

}  // namespace tutti::schedule
