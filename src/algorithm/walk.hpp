// Walk: the time that a schedule takes, step by step, by the numbers of the machine. For explanations; the choice of
// algorithms is by formula (cost.hpp), which needs no schedule.
//
// Pure functions.
#pragma once

#include "algorithm/request.hpp"

#include <cstdint>
#include <vector>

namespace tutti::algorithm {

/// Microseconds until the last rank is done, when all begin at once and a rank does one step after the other, each as
/// soon as the data that it needs is there. `schedules`: of all ranks.
double walked_us(const std::vector<schedule::Schedule>& schedules, const Layout& layout, std::uint64_t element_bytes,
                 const CostModel& costs);

}  // namespace tutti::algorithm
