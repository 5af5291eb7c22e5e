// Races of schedules in place: two ranks touch the same elements of one rank's buffers, one of them writes, and nothing
// says which of them comes first.
//
// One step comes before another by program order of the steps that share memory, by `after`, by `meet` (all ranks'
// beginnings, and what they do before they meet, come before its end), by signal and wait, and by release and settle.
// Before a rank's first step, and after its last one, its caller owns its buffers and may write anywhere. Pure
// functions.
#pragma once

#include "schedule/budget.hpp"
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
std::vector<Race> races_in(const std::vector<Schedule>& schedules, Budget& budget);

/// By rank: whether the schedules give the same results if this rank's input lies in its output
/// (Schedule::input_is_output): no step of any rank reads an element of the input after, or unordered with, a step that
/// writes the output's element in its place. One step may do both, element by element.
std::vector<bool> same_in_place(const std::vector<Schedule>& schedules, Budget& budget);

/// Whether a step that reads `source` and writes `target`, two ranges of one memory, reads each element before it
/// writes it. All but the functions of users go through both from their beginnings.
constexpr bool reads_before_writing(StepKind kind, const Chunk& source, const Chunk& target) noexcept {
    return !ranges_meet(source, target) || (source.offset == target.offset && kind != StepKind::call);
}

/// The chunk that others mean when they name a chunk of `owner`'s buffers.
Chunk at_owner(const std::vector<Schedule>& schedules, Rank owner, Chunk chunk);

}  // namespace tutti::schedule
