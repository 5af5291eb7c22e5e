// Blame: which rank the launcher names as the cause of a failed attempt, and in which words. The evidence counts in
// this order:
//
//   1. a process that could not be started;
//   2. the first of the processes that failed by themselves; if a signal killed another one within 200 ms after it,
//      that one instead, since it did not end because another process did;
//   3. the verdict (the error of its world, rendezvous/failure_report.hpp) that the rank of rule 2 told the launcher
//      before it ended: the rank that the verdict is about is named instead. That rank may still run (it hangs), have
//      ended well, or be on another node; if the verdict is that ranks called different things, none is named. If the
//      rank of rule 2 ended without a verdict, and not by a signal, the first verdict of others about a third rank
//      counts, if it came before.
//
// Threads: pure functions.
#pragma once

#include "core/assert.hpp"
#include "launch/child.hpp"
#include "rendezvous/failure_report.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace tutti::launch {

/// How long to wait for the cause of a rank's exit, which may be another rank's death: on another node, whose launcher
/// reports it first, or here, since a dying process closes its sockets before it can be waited for.
inline constexpr std::chrono::milliseconds courtesy{200};

/// What the launcher knows about one of its processes.
struct Suspect {
    using Moment = std::chrono::steady_clock::time_point;
    std::string name;  ///< "rank 2"
    int rank = -1;     ///< -1: it is the launcher of another node
    const Child* child = nullptr;
    Moment ended{};              ///< when its end was noticed
    bool stopped_by_us = false;  ///< it was running when the launcher ended all
    const std::optional<rendezvous::FailureReport>* said = nullptr;
    Moment said_at{};

    bool failed_by_itself() const {
        TUTTI_ASSERT(child != nullptr);
        return child->failed() && !stopped_by_us;
    }
};

struct Blame {
    enum class Way {
        ended,     ///< `culprit` failed by itself
        accused,   ///< ranks blame `culprit` or, if it is empty, a rank that is not on this node
        disagree,  ///< ranks called different things: nobody is named
    };
    Way way = Way::ended;
    std::size_t first = 0;  ///< the first process that failed by itself
    std::optional<std::size_t> culprit{};
    const rendezvous::FailureReport* verdict = nullptr;  ///< null if `culprit` failed by itself

    /// The process whose exit status becomes the job's.
    std::size_t decisive() const {
        TUTTI_ASSERT(way != Way::ended || culprit);
        return way == Way::ended ? *culprit : first;
    }
};

/// The first process that failed by itself (rules 1 and 2); nothing: none did.
std::optional<std::size_t> first_to_fail(std::span<const Suspect> suspects);
/// Whether a signal other than SIGABRT ended the process.
bool was_killed(const Child& child);
std::optional<Blame> find_culprit(std::span<const Suspect> suspects);

/// "rank 2 (pid 4711) was the first to fail, after 3.1 s: killed by signal 9 (SIGKILL)". `alone`: there are no other
/// ranks.
std::string in_words(const Blame& blame, std::span<const Suspect> suspects, Suspect::Moment started, bool alone);
/// "  the others: rank 0 exited with status 1; rank 3 …\n"; empty: there are none.
std::string the_others(const Blame& blame, std::span<const Suspect> suspects);

}  // namespace tutti::launch
