// The checks of a schedule that need no run: whether the order of its steps rules out that two of them meet.
#pragma once

#include "schedule/budget.hpp"
#include "schedule/contract.hpp"
#include "schedule/schedule.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::schedule {

/// A step whose order relative to another is open.
struct Disorder {
    std::size_t step;
    std::string what;
};

/// Those of one rank's schedule: steps that touch the same elements, one of them writing, and do not wait for each
/// other (only the first); of two ranks of a host, steps that publish where values of the other are still unread.
std::vector<Disorder> disorders_of(Rank rank, const std::vector<Schedule>& schedules, const Contract& contract,
                                   Budget& budget);

}  // namespace tutti::schedule
