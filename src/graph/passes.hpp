// Passes: pure functions from a graph to an equivalent graph that takes less time, each with a description of its
// changes.
//
// A pass sees one rank's graph. Communication must change alike on all ranks: optimise() compares the passes' results
// between ranks, and tells the passes to keep collectives on which the results disagree (Settings::keep). If a call
// moves past a call of another group, ranks of several groups may wait for each other in a circle: optimise() proves
// the results, and tells the pass at fault to keep each call in its place (Settings::in_place).
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
    std::map<Ordinal, std::size_t> most_chunks{};  ///< limits for collectives that other ranks cut into fewer
    /// No call moves past communication of another group, nor past a message: calls are fused at the place of the last
    /// one, and only if they wait for the others there anyway. If the program's order has no circle of waiting ranks,
    /// neither has the new order: each of these calls still comes after all calls that it followed.
    bool in_place = false;

    /// The ordinal of a collective; if it consists of several captured calls, that of the first.
    Ordinal ordinal_of(const Graph& graph, const Node& node) const;
    bool keeps(const Graph& graph, const Node& node) const;
    std::uint64_t bucket_bytes(const GroupInfo& group) const;
};

struct Result {
    Graph graph;
    std::vector<std::string> text;
};

/// Removes compute steps and copies whose results nothing needs.
Result drop_dead_values(const Graph& graph, const Settings& settings);
/// Replaces collectives by fewer ones with the same results, by rules of algebra (algebra.cpp).
Result apply_algebra(const Graph& graph, const Settings& settings);
/// Fuses collectives of one kind that do not depend on each other.
Result make_buckets(const Graph& graph, const Settings& settings);
/// Cuts long all_reduces, reduce_scatters and all_gathers, and the steps before and after them that may run in chunks,
/// into chunks.
Result split_collectives(const Graph& graph, const Settings& settings);
/// Starts long collectives as early, and waits for them as late, as the graph allows.
Result overlap_collectives(const Graph& graph, const Settings& settings);
/// Lets temporaries that are not needed at the same time share the bytes of one arena.
Result reuse_memory(const Graph& graph, const Settings& settings);

/// Sets GroupInfo::changed of each group whose collectives differ from the captured ones, or are in another order.
void mark_changed_groups(const Graph& captured, Graph& made);

/// The graphs of all ranks of `graph`'s only group, on the assumption that each has captured what this rank has. Throws
/// InvalidArgument for a node whose form on another rank this rank cannot know.
std::vector<Graph> as_on_all_ranks(const Graph& graph);

/// The first place in a group's order of collectives at which two graphs differ: in kind, pieces, captured calls or
/// chunk sizes.
struct Difference {
    std::vector<int> ordinals;      ///< the collectives there, of both graphs; empty: the graphs agree
    std::size_t fewest_chunks = 0;  ///< the smaller number of chunks, if both cut one call differently; else 0
};
Difference first_difference(const Graph& a, const Graph& b, const std::string& group, const Settings& of_a,
                            const Settings& of_b);

}  // namespace tutti::graph
