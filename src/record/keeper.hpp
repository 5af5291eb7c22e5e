// Keeper: the recorders of this process, and who wants to see them.
//
// With TUTTI_TRACE_DIR, dumps are written there: when an operation fails, when a group ends, and on SIGUSR2 (unless the
// program handles that signal itself). With TUTTI_METRICS_FILE, the counters of all groups are written to that file
// every second, as Prometheus reads them. For either one thread runs while there is a recorder; without them there is
// no thread and no handler.
//
// Threads: any.
#pragma once

#include "record/recorder.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tutti::record {

/// A recorder is known from add() to remove(); nobody looks at it afterwards.
void add(Recorder& recorder);
void remove(Recorder& recorder) noexcept;

/// TUTTI_TRACE_DIR.
std::optional<std::filesystem::path> trace_directory();

/// Writes one file for each recorder into the directory, which is made if need be; returns the files. Throws
/// InvalidArgument when that cannot be done.
std::vector<std::filesystem::path> dump_all(const std::filesystem::path& directory, const std::string& reason);
/// The counters of all recorders, in order of their making.
std::vector<Counters> all_counters();
/// The same in Prometheus' text format.
std::string prometheus_text();

}  // namespace tutti::record
