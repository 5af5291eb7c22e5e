// Timeline: merges the dumps of many ranks: worlds, the ranks that wait for each other, and a chart of all operations.
//
// The clocks of different machines are aligned by the collectives that their ranks have in common: no rank can end one
// before all have begun it.
//
// Threads: values and free functions.
#pragma once

#include "record/dump.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::record {

struct WorldTimeline {
    std::string group;
    std::uint64_t id = 0;
    Members members;
    std::vector<std::optional<Dump>> ranks;  ///< nothing for a rank without a dump
    /// By rank: the offset to add to the times in its dump.
    std::vector<std::int64_t> offset_ns;
};

/// Sorts dumps by world; if a rank has several, the latest counts. Throws InvalidArgument if two dumps of one world
/// contradict each other.
std::vector<WorldTimeline> merge(std::vector<Dump> dumps);

struct Wait {
    int rank = 0;
    std::vector<int> peers;
    Entry in;             ///< the operation that waits
    double seconds = 0;   ///< how long it had waited when the dump was taken or it failed
    std::string because;  ///< what is known about the peers
};
/// The waits, in the order of ranks. Failed operations count, too: there their rank waited.
std::vector<Wait> wait_for_graph(const WorldTimeline& world);
/// Ranks that wait for each other in a circle, each circle once; the first rank is not repeated.
std::vector<std::vector<int>> circles(std::span<const Wait> waits);

/// The world as text: each rank's operation, the ranks that it waits for, circles.
std::string describe(const WorldTimeline& world);

/// A timeline as Perfetto and chrome://tracing read it: a process for each rank, a track for each group, arrows from
/// the rank that came last to the ranks that it kept waiting, and from sends to receives. A track for each graph that a
/// process has replayed, with a slice for each of its last replays and beneath it one for each node.
std::string chrome_trace(std::span<const WorldTimeline> worlds);

}  // namespace tutti::record
