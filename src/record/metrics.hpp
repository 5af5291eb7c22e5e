// Counters in Prometheus' text format 0.0.4.
//
// Threads: free functions.
#pragma once

#include "record/counters.hpp"

#include <span>
#include <string>

namespace tutti::record {

/// Series by operation only where operations are counted one by one.
std::string prometheus_text_of(std::span<const Counters> all);

}  // namespace tutti::record
