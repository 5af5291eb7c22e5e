// Races of in-place schedules: two ranks access the same elements of one rank's buffers, one of them writes, and
// nothing orders the two accesses.
//
// Steps are ordered by the program order of the steps that share memory, by `after`, by `meet` (what every rank does
// before it meets comes before the end of any rank's meet), by signal and wait, and by release and settle. Before a
// rank's first step, and after its last one, its caller owns its buffers and may write anywhere. Pure functions.
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

/// At most one race for each rank's buffers, and all accesses to elements of another rank that its `meet` does not
/// publish. Empty for schedules that are not in place.
std::vector<Race> races_in(const std::vector<Schedule>& schedules, Budget& budget);

/// For each rank: whether the results stay the same if that rank's input lies in its output
/// (Schedule::input_is_output): no step of any rank reads an input element after, or unordered with, a step that writes
/// the output element in its place. One step may do both, element by element.
std::vector<bool> same_in_place(const std::vector<Schedule>& schedules, Budget& budget);

/// Whether a step that reads `source` and writes `target`, two ranges of one memory, reads each element before it
/// writes it. All kinds but users' functions process both ranges from the beginning.
constexpr bool reads_before_writing(StepKind kind, const Chunk& source, const Chunk& target) noexcept {
    return !ranges_meet(source, target) || (source.offset == target.offset && kind != StepKind::call);
}

/// The chunk that other ranks access when they name `chunk` of `owner`'s buffers.
Chunk at_owner(const std::vector<Schedule>& schedules, Rank owner, Chunk chunk);

}  // namespace tutti::schedule
