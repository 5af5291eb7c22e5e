// The machine: what it is, and what it costs to use it. Free functions; any thread.
#pragma once

#include "algorithm/tuning.hpp"
#include "core/deadline.hpp"

#include <string>

namespace tutti::tune {

inline constexpr std::chrono::milliseconds measuring_limit{20};

/// Measures, and stops at `deadline`, also when other programs keep the cores busy. What there was no time for, and
/// what this process cannot see (a line between two cores when it may use one), keeps its default. Every number lies
/// within its field's bounds. Starts threads of its own, and ends them.
algorithm::CostModel measure(const Deadline& deadline);

/// What the numbers depend on, in a line: host, processor, cores that this process may use, caches, kernel, version.
std::string topology();

}  // namespace tutti::tune
