// The table that chooses an algorithm: printing it, and overriding it from the environment.
#pragma once

#include "schedule/schedule.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace tutti::algorithm {

/// The value of TUTTI_ALGORITHM ("ring" or "all_reduce=ring,broadcast=chain") for one collective; nullopt if it does
/// not name one. Throws InvalidArgument that lists the names for an unknown one.
std::optional<std::string> parse_override(std::string_view text, Collective collective);

/// The table, for people.
std::string describe_table();

}  // namespace tutti::algorithm
