// DumpWriter: the list of this process's recorders, and the writers of their dumps and counters.
//
// If TUTTI_TRACE_DIR is set, dumps are written there: when an operation fails, when a group ends, and on SIGUSR2
// (unless the program handles this signal itself). TUTTI_TRACE_FORMAT=torch adds files for torchfrtrace (flight.hpp)
// with all groups of a rank: when an operation fails, when the last group ends, and on SIGUSR2. If TUTTI_METRICS_FILE
// is set, the counters of all groups are written to that file every second, in Prometheus' format. If either is set,
// one thread runs while there is a recorder; otherwise there is no thread and no handler.
//
// Threads: any.
#pragma once

#include "record/recorder.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace tutti::record {

/// A recorder is listed from add() to remove(); nobody reads it afterwards.
void add(Recorder& recorder);
void remove(Recorder& recorder) noexcept;

/// Call it when a group has failed: writes the files for torchfrtrace if they are wanted. All groups of a world fail
/// together, and the first call's files cover them all, so calls soon afterwards do nothing.
void write_flight_after_failure() noexcept;
/// As dump_all(), but writes the files for torchfrtrace.
std::vector<std::filesystem::path> dump_flight(const std::filesystem::path& directory);
/// Writes one file per recorder into the directory, which it makes if needed; returns the files. Throws InvalidArgument
/// on failure.
std::vector<std::filesystem::path> dump_all(const std::filesystem::path& directory, const std::string& reason);
/// Dumps of the present groups: the last `count` operations of each, and every older one that is still open.
std::vector<Dump> live_dumps(const std::string& reason, std::size_t count);
/// The counters of all recorders, in the order of add().
std::vector<Counters> all_counters();
/// all_counters() in Prometheus' text format.
std::string prometheus_text();

}  // namespace tutti::record
