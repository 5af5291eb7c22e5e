// FailureReport: a rank's word to the launcher that started it, when its world has failed: what the error is, and which
// rank it is about. A rank that hangs, or waits for one that hangs, does not end first; those that wait for it do, and
// only they know for whom they waited.
//
// It is one datagram to the abstract Unix socket that `tutti run` names by TUTTI_LAUNCHER. Nothing depends on it: where
// it is lost, or launcher and rank are in different network name spaces, the launcher goes by how processes end.
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
    int from = -1;  ///< the rank that says so, by its launcher's number (RANK)
    int code = 0;   ///< an ErrorCode; 0: what this rank said before is over, it has joined a new world
    int culprit =
        -1;  ///< the rank that the error is about, by the launcher's number; -1: none, or it has no such number
    std::string place{};  ///< of that rank: "node07, pid 4711"; empty: not known
    std::string text{};   ///< of the error
};

std::string encode(FailureReport report);
std::optional<FailureReport> decode_failure_report(std::string_view bytes);
/// The name of the launcher's socket; `id`: TUTTI_LAUNCHER.
std::string report_address(std::string_view id);

/// To this process's launcher, if it has one: rank `rank` of a world of `size` ranks has failed, or could not join
/// (`cards` is empty then).
void report_failure(const std::exception_ptr& error, int rank, int size, const std::vector<Card>& cards) noexcept;
/// A world has been joined: what was reported before is over.
void report_joined() noexcept;

}  // namespace tutti::rendezvous
