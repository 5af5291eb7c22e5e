// FailureReport: tells the launcher that started this process how its world failed: the error, and the rank that it is
// about; or which rank of the job it has become (newcomers.hpp). The culprit is often not the first rank to exit: it
// may hang while the ranks that wait for it time out and exit, and only they know for which rank they waited.
//
// It is one datagram to the abstract Unix socket that `tutti run` names by TUTTI_LAUNCHER. Nothing depends on it: if it
// is lost, or launcher and rank are in different network name spaces, the launcher judges by how processes end.
//
// Threads: any.
#pragma once

#include "rendezvous/card.hpp"

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::rendezvous {

struct FailureReport {
    int from = -1;  ///< the reporting process, by its launcher's number (TUTTI_LAUNCH_NUMBER)
    int code = 0;   ///< an ErrorCode; 0: this rank has joined a new world, which withdraws its earlier reports
    int culprit =
        -1;  ///< the rank that the error is about, by the launcher's number; -1: none, or it has no such number
    std::string place{};      ///< of the culprit: "node07, pid 4711"; empty: not known
    std::string text{};       ///< the error's message
    int rank = -1, size = 0;  ///< with code 0: the process is this rank of the job's `size`; size 0: as before
};

std::string encode(FailureReport report);
std::optional<FailureReport> decode_failure_report(std::string_view bytes);
/// The name of the launcher's socket; `id`: the value of TUTTI_LAUNCHER.
std::string report_address(std::string_view id);

/// Tells this process's launcher, if it has one, that this rank's world has failed with `error`, or that this rank
/// could not join it (then `cards` is empty). `rank`, `size`: this rank's number and the number of ranks in that world.
void report_failure(const std::exception_ptr& error, int rank, int size, const std::vector<Card>& cards) noexcept;
/// Tells the launcher that this process has joined a world as this rank, which withdraws its earlier reports. A
/// launcher that replaces ranks (TUTTI_REPLACES) also learns that the job's ranks have met.
void report_joined(int rank, int size) noexcept;
/// Tells a launcher that replaces ranks that this process is now rank `rank` of the job's `size`. Others go on to use
/// the numbers that they gave.
void report_member(int rank, int size) noexcept;
/// Whether rank `rank` of `size` is this process's number in the job: RANK and WORLD_SIZE, or those of report_member().
bool is_rank_of_job(int rank, int size);

}  // namespace tutti::rendezvous
