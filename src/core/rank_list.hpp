// Ranks in messages: "rank 3", "ranks 0 to 6, 9". A job may have thousands, and a reader looks for the few that matter.
#pragma once

#include <span>
#include <string>

namespace tutti {

/// "rank" or "ranks", and their numbers in the order that is given. Four or more that follow one another become
/// "first to last"; behind the sixteenth number or range it says how many ranks are left out.
std::string rank_list(std::span<const int> ranks);

}  // namespace tutti
