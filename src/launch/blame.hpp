// Blame: which rank the launcher names as the cause of a failed attempt, and in which words. The evidence counts in
// this order:
//
//   1. a process that could not be started;
//   2. of the processes that ended badly by themselves, the first; one that a signal killed counts before others that
//      ended in the same moment (200 ms): it did not end because another did;
//   3. the verdict of that rank's world (rendezvous/failure_report.hpp), if it told the launcher one before it ended:
//      the rank that the verdict is about is named instead. It may run yet (it hangs), have ended well, be on another
//      node; and where the ranks called different things, none is named. A rank that ended without a verdict, and not
//      by a signal, also gives way to a third one that other ranks had blamed before.
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

/// A rank that exits may do so because another died: on another node, of which that node's launcher tells first, or
/// here, where sockets close before the dead process can be waited for.
inline constexpr std::chrono::milliseconds courtesy{200};

/// The launcher's knowledge of one of its processes.
struct Suspect {
    using Moment = std::chrono::steady_clock::time_point;
    std::string name;  ///< "rank 2"
    int rank = -1;     ///< -1: it is the launcher of another node
    const Child* child = nullptr;
    Moment ended{};              ///< when its end was noticed
    bool stopped_by_us = false;  ///< it ran when the launcher ended all
    const std::optional<rendezvous::FailureReport>* said = nullptr;
    Moment said_at{};

    bool failed_by_itself() const {
        TUTTI_ASSERT(child != nullptr);
        return child->failed() && !stopped_by_us;
    }
};

struct Blame {
    enum class Way {
        ended,     ///< `culprit` ended badly by itself
        accused,   ///< ranks blame it: `culprit`, or one that is not of this node
        disagree,  ///< ranks called different things: nobody is named
    };
    Way way = Way::ended;
    std::size_t first = 0;  ///< the first that ended badly by itself
    std::optional<std::size_t> culprit{};
    const rendezvous::FailureReport* verdict = nullptr;  ///< unless `culprit` ended badly

    /// The process whose end is the job's.
    std::size_t decisive() const {
        TUTTI_ASSERT(way != Way::ended || culprit);
        return way == Way::ended ? *culprit : first;
    }
};

/// The first that ended badly by itself (1. and 2.); nothing: none did.
std::optional<std::size_t> first_to_fail(std::span<const Suspect> suspects);
/// Whether a signal other than SIGABRT ended it.
bool was_killed(const Child& child);
std::optional<Blame> find_culprit(std::span<const Suspect> suspects);

/// "rank 2 (pid 4711) was the first to fail, after 3.1 s: killed by signal 9 (SIGKILL)". `alone`: there are no other
/// ranks.
std::string in_words(const Blame& blame, std::span<const Suspect> suspects, Suspect::Moment started, bool alone);
/// "  the others: rank 0 exited with status 1; rank 3 …\n"; empty: there are none.
std::string the_others(const Blame& blame, std::span<const Suspect> suspects);

}  // namespace tutti::launch
