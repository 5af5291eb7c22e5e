// Passes: pure functions from a graph to a graph that does the same in less time, each with its changes in words.
//
// A pass sees one rank's graph. Communication must change alike on all ranks: optimise() compares what the ranks'
// passes made, and has them leave alone what they do not agree on (Settings::keep).
#pragma once

#include "graph/value.hpp"

#include <set>
#include <string>
#include <vector>

namespace tutti::graph {

struct Settings {
    OptimiseOptions options;
    std::vector<int> ordinals;  ///< of the captured graph (value.hpp)
    std::set<Ordinal> keep;     ///< collectives that stay as they are

    bool keeps(const Graph& graph, const Node& node) const;
    std::uint64_t bucket_bytes(const GroupInfo& group) const;
};

struct Result {
    Graph graph;
    std::vector<std::string> text;
};

/// Leaves out compute steps and copies of which nobody needs the results.
Result drop_dead_values(const Graph& graph, const Settings& settings);
/// Fewer collectives that give the same: rules of algebra (algebra.cpp).
Result apply_algebra(const Graph& graph, const Settings& settings);
/// Puts collectives of one kind that do not need each other into one.
Result make_buckets(const Graph& graph, const Settings& settings);
/// Starts long collectives as early, and waits for them as late, as the graph allows.
Result overlap_collectives(const Graph& graph, const Settings& settings);

/// Whether two graphs' collectives of a group agree: place by place the same kind, pieces and captured calls. Otherwise
/// the ordinals of those that differ first, on either side.
std::vector<int> first_difference(const Graph& a, const Graph& b, const std::string& group, const Settings& of_a,
                                  const Settings& of_b);

}  // namespace tutti::graph
