// Counters in Prometheus' text format 0.0.4.
//
// Threads: free functions.
#pragma once

#include "record/counters.hpp"

#include <span>
#include <string>

namespace tutti::record {

/// Contains series by operation only if Recorder::counts_operations().
std::string prometheus_text_of(std::span<const Counters> all);

}  // namespace tutti::record
