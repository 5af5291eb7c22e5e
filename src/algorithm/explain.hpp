// explain(): a schedule as text for people: the chosen algorithm, the reason, the steps and their cost.
#pragma once

#include "algorithm/request.hpp"
#include "schedule/text.hpp"

#include <string>
#include <vector>

namespace tutti::algorithm {

/// The algorithm, the reason, the machine's parameters (`source` says where they come from; defaults if the layout's
/// tuning has none), the predicted time of every algorithm that applies, bytes, and the steps of rank 0 (of all ranks
/// if there are few).
std::string explain(const Layout& layout, const Request& request, const std::string& source);

/// The schedules of all ranks for a request.
std::vector<schedule::Schedule> schedules_of(const Layout& layout, const Request& request);

/// The schedules of all ranks for a request, and their contract, for the smallest count that can express them. Named
/// "my_ring" if the algorithm is "ring", so that a user may change and run them (TUTTI_SCHEDULE); without the in-place
/// schedules' alternatives (Schedule::otherwise).
schedule::Recipe recipe_of(const Layout& layout, const Request& request);

}  // namespace tutti::algorithm
