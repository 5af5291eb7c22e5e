// Walk: the predicted time of a schedule, step by step, by the machine's parameters. For explanations; algorithms are
// chosen by formula (cost.hpp), which needs no schedule.
//
// Pure functions.
#pragma once

#include "algorithm/request.hpp"

#include <cstdint>
#include <vector>

namespace tutti::algorithm {

/// Microseconds until the last rank is done, if all begin at the same time and each rank does one step after the other,
/// each as soon as its data is there. `schedules`: of all ranks.
double walked_us(const std::vector<schedule::Schedule>& schedules, const Layout& layout, std::uint64_t element_bytes,
                 const CostModel& costs);

}  // namespace tutti::algorithm
