// The static check of a schedule: whether the order of its steps excludes conflicting accesses.
#pragma once

#include "schedule/budget.hpp"
#include "schedule/contract.hpp"
#include "schedule/schedule.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::schedule {

/// A step that is not ordered with another one that conflicts with it.
struct Disorder {
    std::size_t step;
    std::string what;
};

/// The disorders of one rank's schedule: the first step that conflicts with another one (both access the same elements,
/// and at least one writes them) without an order between the two; and steps that publish into memory that still holds
/// unread values of another rank of the host.
std::vector<Disorder> disorders_of(Rank rank, const std::vector<Schedule>& schedules, const Contract& contract,
                                   Budget& budget);

}  // namespace tutti::schedule
