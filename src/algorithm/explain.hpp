// explain(): a schedule in words, for people: the choice, its reason, the steps and their cost.
#pragma once

#include "algorithm/plan.hpp"

#include <string>

namespace tutti::algorithm {

/// The algorithm, the reason, the numbers of the machine (`source` says where they come from; the defaults where the
/// layout's tuning has none), the predicted time of every algorithm that applies, bytes, and rank 0's steps (all ranks'
/// when there are few).
std::string explain(const Layout& layout, Request request, const std::string& source);

}  // namespace tutti::algorithm
