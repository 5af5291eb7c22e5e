// plan(): from a request to one rank's schedule. A pure function.
//
// A printable table chooses the algorithm that serves a request (select.hpp), unless the request names one.
#pragma once

#include "algorithm/request.hpp"
#include "schedule/schedule.hpp"

#include <optional>
#include <string>
#include <vector>

namespace tutti::algorithm {

/// The schedule of `request.rank`. Every rank of the group gets matching schedules from matching requests.
schedule::Schedule plan(const Layout& layout, const Request& request);

struct Choice {
    std::string algorithm;
    std::string reason;  ///< one sentence, with the numbers that decided
};
/// The algorithm that plan() would use; the same on all ranks: it depends on nothing rank-specific.
/// all_to_all: decided by largest_count alone, because ranks know only their own counts.
Choice choose(const Layout& layout, const Request& request);

/// The predicted time of one algorithm.
struct Estimate {
    std::string algorithm;
    std::optional<double> us;  ///< empty: there is no formula for it
};
/// Of all algorithms that can serve this request, in the order of the table.
std::vector<Estimate> estimates(const Layout& layout, const Request& request, const CostModel& costs);

/// Names of the algorithms that can serve this request, best first.
std::vector<std::string> applicable(const Layout& layout, const Request& request);

}  // namespace tutti::algorithm
