// Passes: pure functions from a graph to a graph that does the same in less time, each with its changes in words.
//
// A pass sees one rank's graph. Communication must change alike on all ranks: optimise() compares what the ranks'
// passes made, and has them leave alone what they do not agree on (Settings::keep). Ranks of several groups may wait
// for each other in a circle where a call moves past one of another group: optimise() proves what the passes made, and
// has the pass to blame keep each call in its place (Settings::in_place).
#pragma once

#include "graph/value.hpp"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace tutti::graph {

struct Settings {
    OptimiseOptions options;
    std::vector<int> ordinals;                     ///< of the captured graph (value.hpp)
    std::set<Ordinal> keep;                        ///< collectives that stay as they are
    std::map<Ordinal, std::size_t> most_chunks{};  ///< of collectives that other ranks cut into fewer
    /// No call moves past communication of another group, nor past a message: calls are fused at the place of the last
    /// one, and only if they wait for the others there anyway. If the program's order has no circle of waiting ranks,
    /// neither has the new order: each of these calls still comes after all calls that it followed.
    bool in_place = false;

    /// Of a collective that is made of captured calls: the first of them.
    Ordinal ordinal_of(const Graph& graph, const Node& node) const;
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
/// Cuts long all_reduces, reduce_scatters and all_gathers, and the steps before and after them that may run in chunks,
/// into chunks.
Result split_collectives(const Graph& graph, const Settings& settings);
/// Starts long collectives as early, and waits for them as late, as the graph allows.
Result overlap_collectives(const Graph& graph, const Settings& settings);
/// Has temporaries that are not needed at the same time share the bytes of one arena.
Result reuse_memory(const Graph& graph, const Settings& settings);

/// Notes for each group whether its collectives are others than the captured ones, or in another order.
void mark_changed_groups(const Graph& captured, Graph& made);

/// The graphs of all ranks of the one group of `graph`, if each has captured what this rank has. Throws InvalidArgument
/// for a node of which this rank cannot know what it is on another.
std::vector<Graph> as_on_all_ranks(const Graph& graph);

/// The first collectives of a group in which two graphs do not agree, place by place: in the kind, the pieces, the
/// captured calls, the sizes of chunks.
struct Difference {
    std::vector<int> ordinals;      ///< on either side; empty: the graphs agree
    std::size_t fewest_chunks = 0;  ///< of the two, where both have cut one call and it is in how many; else 0
};
Difference first_difference(const Graph& a, const Graph& b, const std::string& group, const Settings& of_a,
                            const Settings& of_b);

}  // namespace tutti::graph
