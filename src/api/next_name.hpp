// The name of a group that takes another one's place.
#pragma once

#include <string>

namespace tutti::api {

/// "world.1" for "world", "world.2" for "world.1": the group's number among those of that origin.
std::string next_name(const std::string& name);

}  // namespace tutti::api
