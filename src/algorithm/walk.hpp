// Walk: the predicted time of a schedule, step by step, by the machine's parameters. For explanations; algorithms are
// chosen by formula (cost.hpp), which needs no schedule.
//
// Pure functions.
#pragma once

#include "algorithm/request.hpp"

#include <cstdint>
#include <vector>

namespace tutti::algorithm {

/// When a step keeps its rank busy, in microseconds since all ranks began.
struct Span {
    double begin_us = 0, end_us = 0;
};

/// Returns the spans by rank and step. All ranks begin at once, and a rank does one step after the other, each as soon
/// as the data that it needs have arrived. `schedules`: of all ranks.
std::vector<std::vector<Span>> walk(const std::vector<schedule::Schedule>& schedules, const Layout& layout,
                                    std::uint64_t element_bytes, const CostModel& costs);
/// Microseconds until the last rank is done, under the same assumptions.
double walked_us(const std::vector<schedule::Schedule>& schedules, const Layout& layout, std::uint64_t element_bytes,
                 const CostModel& costs);

}  // namespace tutti::algorithm
