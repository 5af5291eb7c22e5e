// explain(): a schedule in words, for people: the choice, its reason, the steps and their cost.
#pragma once

#include "algorithm/request.hpp"
#include "schedule/text.hpp"

#include <string>

namespace tutti::algorithm {

/// The algorithm, the reason, the numbers of the machine (`source` says where they come from; the defaults where the
/// layout's tuning has none), the predicted time of every algorithm that applies, bytes, and rank 0's steps (all ranks'
/// when there are few).
std::string explain(const Layout& layout, Request request, const std::string& source);

/// The schedules of all ranks for a request, and what they promise, for the fewest elements that they can be said for.
/// Named "my_ring" where the algorithm is "ring", so that a user may change them and run them (TUTTI_SCHEDULE); without
/// what ranks run otherwise, in place.
schedule::Recipe recipe_of(const Layout& layout, Request request);

}  // namespace tutti::algorithm
