// Ranks in messages: "rank 3", "ranks 0 to 6, 9". A job may have thousands, and a reader looks for the few that matter.
#pragma once

#include <span>
#include <string>

namespace tutti {

/// "rank" or "ranks" and the numbers, in the given order. Four or more consecutive numbers become "first to last";
/// after 16 numbers or ranges the text ends with how many ranks are left out.
std::string rank_list(std::span<const int> ranks);

}  // namespace tutti
