// Wanted: what the environment wants recorded. All throw InvalidArgument for a variable that has a wrong value.
//
// Threads: as env.hpp.
#pragma once

#include <filesystem>
#include <optional>

namespace tutti::record {

/// TUTTI_STATUS_PORT: the pages of the rank r of the world are at this port + r; nullopt: nobody wants pages.
std::optional<int> status_port();
/// TUTTI_TRACE_DIR: where dumps go; nullopt: nobody wants any.
std::optional<std::filesystem::path> trace_directory();
/// Whether trace_directory() gets torchfrtrace's files (TUTTI_TRACE_FORMAT=torch).
bool wants_flight_files();
/// Whether to record each rank's elements in an all_to_all: where dumps or pages are wanted.
bool wants_splits();

}  // namespace tutti::record
