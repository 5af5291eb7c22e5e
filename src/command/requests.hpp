// Requests: descriptions of collective calls, as a user's calls would make them, for the commands that examine
// algorithms: explain, bench --regret.
#pragma once

#include "algorithm/request.hpp"

#include <tutti/dtype.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::command {

/// Names of all collectives.
std::vector<std::string> planned_collectives();
/// Rank 0's request; `bytes` is the size of the whole buffer, cut into equal blocks where the collective has blocks.
/// Throws InvalidArgument for a name that is not in planned_collectives().
algorithm::Request request_for(const std::string& collective, std::uint64_t bytes, DType dtype, int ranks);

}  // namespace tutti::command
