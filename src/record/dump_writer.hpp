// DumpWriter: the recorders of this process, and their readers.
//
// With TUTTI_TRACE_DIR, dumps are written there: when an operation fails, when a group ends, and on SIGUSR2 (unless the
// program handles that signal itself). TUTTI_TRACE_FORMAT=torch adds files for torchfrtrace (flight.hpp), with all
// groups of a rank: when an operation fails, when the last group ends, and on SIGUSR2. With TUTTI_METRICS_FILE, the
// counters of all groups are written to that file every second, as Prometheus reads them. For either one thread runs
// while there is a recorder; without them there is no thread and no handler.
//
// Threads: any.
#pragma once

#include "record/recorder.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace tutti::record {

/// A recorder is known from add() to remove(); nobody looks at it afterwards.
void add(Recorder& recorder);
void remove(Recorder& recorder) noexcept;

/// When a group has failed: writes the files for torchfrtrace where they are wanted. All groups of a world fail
/// together, and the first one's files have them all.
void write_flight_after_failure() noexcept;
/// Writes the files for torchfrtrace into the directory, as dump_all does.
std::vector<std::filesystem::path> dump_flight(const std::filesystem::path& directory);
/// Writes one file for each recorder into the directory, which is made if need be; returns the files. Throws
/// InvalidArgument when that cannot be done.
std::vector<std::filesystem::path> dump_all(const std::filesystem::path& directory, const std::string& reason);
/// Of the groups that there are: the last `count` operations, and every older one that is still open.
std::vector<Dump> live_dumps(const std::string& reason, std::size_t count);
/// The counters of all recorders, in order of their making.
std::vector<Counters> all_counters();
/// The same in Prometheus' text format.
std::string prometheus_text();

}  // namespace tutti::record
