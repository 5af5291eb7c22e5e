// The graphs of all ranks, made of one rank's: those of a program that does the same on each.
//
// What a node reads and writes is the same on all ranks, but for a broadcast, which the root reads and the others
// write. Of blocks whose lengths differ, of the other rooted collectives, of an exclusive prefix, which rank 0 does not
// get, and of messages, one rank sees only its own part.
#include "graph/passes.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tutti::graph {
namespace {

bool are_equal(const std::vector<Range>& blocks) {
    return std::ranges::all_of(blocks, [&](const Range& r) { return r.bytes == blocks.front().bytes; });
}

bool is_known_everywhere(const Node& n) {
    const auto all = [&](bool (*holds)(const Piece&)) { return std::ranges::all_of(n.pieces, holds); };
    if (!is_communication(n.kind)) return true;
    if (is_message(n.kind)) return false;
    const CollectiveTraits& traits = traits_of(n.kind);
    if (traits.whose == CollectiveTraits::Combines::exclusive) return false;
    if (traits.is_rooted()) return n.kind == Kind::broadcast && !n.opaque;
    const bool has_lengths = traits.has_blocks() || traits.input == CollectiveTraits::Extent::exchanged;
    return !has_lengths || (!n.opaque && all([](const Piece& p) { return are_equal(p.reads) && are_equal(p.writes); }));
}

/// A broadcast as another rank has it.
void turn(Node& n, bool is_root) {
    for (Piece& p : n.pieces) {
        if (p.reads.empty() == is_root) std::swap(p.reads, p.writes);
    }
}

}  // namespace

std::vector<Graph> as_on_all_ranks(const Graph& graph) {
    if (graph.groups.size() != 1)
        throw InvalidArgument(
            fmt::format("optimise: alike is set, and the graph has {} groups: expected one", graph.groups.size()));
    for (const Node& n : graph.nodes) {
        if (is_known_everywhere(n)) continue;
        throw InvalidArgument(fmt::format(
            "optimise: alike is set, but what {} is on other ranks cannot be told from this one: expected a "
            "broadcast, or a collective without a root whose blocks are equal and have no gaps",
            describe(graph, n)));
    }
    std::vector<Graph> graphs(graph.groups.front().ranks.size(), graph);
    for (std::size_t r = 0; r < graphs.size(); ++r) {
        GroupInfo& group = graphs[r].groups.front();
        if (static_cast<int>(r) == group.rank) continue;
        group.rank = static_cast<int>(r);
        for (Node& n : graphs[r].nodes) {
            if (n.kind == Kind::broadcast) turn(n, n.root == group.rank);
        }
    }
    return graphs;
}

}  // namespace tutti::graph
