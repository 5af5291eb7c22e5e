// Wanted: what the environment asks to record. All functions throw InvalidArgument for a variable with a wrong value.
//
// Threads: see env.hpp.
#pragma once

#include <filesystem>
#include <optional>

namespace tutti::record {

/// TUTTI_STATUS_PORT: the port of rank 0's pages; rank r of the world has this port + r. nullopt: no pages wanted.
std::optional<int> status_port();
/// TUTTI_TRACE_DIR: where dumps go; nullopt: no dumps wanted.
std::optional<std::filesystem::path> trace_directory();
/// Whether to write torchfrtrace's files to trace_directory() (TUTTI_TRACE_FORMAT=torch).
bool wants_flight_files();
/// Whether to record the elements per rank of an all_to_all: true if dumps or pages are wanted.
bool wants_splits();

}  // namespace tutti::record
