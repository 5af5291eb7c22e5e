// explain(): a schedule in words, for people: what was chosen, why, its steps and what they cost.
#pragma once

#include "algorithm/plan.hpp"

#include <string>

namespace tutti::algorithm {

/// What messages and memory cost; rough figures of today's machines unless they were measured.
struct CostModel {
    double shared_latency_us = 0.3;  ///< a publication seen by another core
    double network_latency_us = 15;  ///< a message between hosts
    double copy_gbps = 8;            ///< gigabytes a second, read and written once
    double network_gbps = 1.5;
};

/// The algorithm, the reason, rank 0's steps (all ranks' when there are few), bytes, and the estimated time.
std::string explain(const Layout& layout, Request request, const CostModel& model = {});

/// Estimated seconds of a set of schedules: the longest chain of dependent steps, by the model.
double estimate_us(const std::vector<schedule::Schedule>& schedules, std::uint64_t element_bytes,
                   const CostModel& model);

}  // namespace tutti::algorithm
