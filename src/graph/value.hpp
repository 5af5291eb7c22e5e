// Queries on graphs, for passes and the proof, beside the public value (tutti/graph.hpp). Pure functions.
#pragma once

#include <tutti/graph.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::graph {

/// The largest cost of a compute step, also in texts.
inline constexpr double cost_us_max = 1e15;

constexpr bool is_communication(Kind kind) noexcept {
    return is_collective(kind) || is_message(kind);
}
bool overlap(const Range& a, const Range& b) noexcept;

/// All ranges that a node reads or writes, over its pieces. An opaque node (its tensors have gaps) counts as also
/// reading what it writes: its ranges include the gaps, whose bytes stay unchanged.
std::vector<Range> reads_of(const Node& node);
std::vector<Range> writes_of(const Node& node);
/// The size of a collective: the longer of this rank's input and output.
std::uint64_t bytes_of(const Node& node);

/// For each node, by position, the positions of the nodes that it must follow: edges without their reasons. A wait
/// represents the end of its node.
std::vector<std::vector<int>> predecessors(const Graph& graph);

/// The global rank whose graph this is, according to its groups; `otherwise` if it has no groups.
int rank_in_world(const Graph& graph, int otherwise);

/// The same for the graphs of all ranks that their groups name; graphs without groups get the remaining numbers.
std::vector<int> ranks_in_world(const std::vector<Graph>& graphs);

/// "all_reduce of float32 × 16, sum (train.cpp:12)"
std::string describe(const Graph& graph, const Node& node);

/// Identifies a captured collective, equally on all ranks of its group: the group's name, and the call's place among
/// the group's collectives.
using Ordinal = std::pair<std::string, int>;
/// By captured call (Piece::call): its place among the collectives of its group.
std::vector<int> ordinals(const Graph& captured);

/// Whether combining equal values gives the same value.
constexpr bool is_idempotent(ReduceOp::Kind op) noexcept {
    using K = ReduceOp::Kind;
    return op == K::min || op == K::max || op == K::band || op == K::bor;
}
/// Whether combining in another order gives the same bits.
bool is_exact(ReduceOp::Kind op, DType dtype) noexcept;
/// Whether passes may change the order in which the node combines values, which may change the rounding of sums.
bool may_be_combined_otherwise(const Graph& graph, const Node& node) noexcept;
constexpr const CollectiveTraits& traits_of(Kind collective) noexcept {
    return tutti::traits_of(static_cast<Collective>(collective));
}
constexpr bool combines(Kind kind) noexcept {
    return is_collective(kind) && traits_of(kind).combines;
}
/// Whether the collective may run as several, each on a part of every rank's buffer, or on a part of every block in it.
constexpr bool may_run_in_chunks(Kind kind) noexcept {
    if (!is_collective(kind) || traits_of(kind).is_rooted() || traits_of(kind).is_prefix()) return false;
    return traits_of(kind).has_blocks() || traits_of(kind).input == CollectiveTraits::Extent::whole;
}

/// For a compute step that may run in chunks: whether each chunk gets that read whole.
bool is_whole(const Node& step, std::size_t read) noexcept;
/// Whether the step may run in chunks: its tensors have rows, and some read is cut with them.
bool has_rows(const Node& step) noexcept;

/// The predicted microseconds of a node.
double predicted_us(const Graph& graph, const Node& node);

/// By position: whether an asynchronous collective could as well block: until its wait this rank has no messages and no
/// collectives of other groups, so no other rank depends on this rank's progress meanwhile.
std::vector<bool> could_block(const Graph& graph);

/// The next free id.
int next_id(const Graph& graph);

}  // namespace tutti::graph
