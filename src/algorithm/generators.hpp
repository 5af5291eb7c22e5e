// The generators: each writes one rank's part of a collective into a builder. Pure functions.
//
// A generator works among the ranks of a Scope (all of a group, the ranks of one host, the leaders of the hosts), so
// that larger collectives are composed from smaller ones. `me` and roots are positions in the scope.
#pragma once

#include "algorithm/plan.hpp"
#include "schedule/builder.hpp"

#include <cstdint>
#include <vector>

namespace tutti::algorithm {

using schedule::Buffer;
using schedule::Builder;
using schedule::Chunk;
using schedule::Operand;

struct Scope {
    std::vector<Rank> ranks;
    int me = 0;
    int size() const { return static_cast<int>(ranks.size()); }
    Rank rank(int position) const { return ranks[static_cast<std::size_t>(position)]; }
};

/// The staging area, in elements.
struct Staging {
    std::uint64_t slot = 0;
    std::uint32_t slots = 0;
    /// What a pipeline of three rounds a tile needs to keep going.
    static constexpr std::uint32_t slots_for_both = 8;
};

/// `count` elements cut into `parts` pieces whose sizes differ by at most one; piece `index` as (offset, count).
inline Chunk piece_of(Chunk whole, int parts, int index) {
    const auto p = static_cast<std::uint64_t>(parts);
    const auto i = static_cast<std::uint64_t>(index);
    const std::uint64_t base = whole.count / p, extra = whole.count % p;
    return {whole.buffer, whole.offset + i * base + std::min(i, extra), base + (i < extra ? 1 : 0)};
}
inline Chunk part(Chunk whole, std::uint64_t offset, std::uint64_t count) {
    return {whole.buffer, whole.offset + offset, count};
}
/// Where each rank's block lies in a buffer that holds all blocks one after the other.
inline Chunk block_of(Buffer buffer, const std::vector<std::uint64_t>& counts, int index) {
    std::uint64_t offset = 0;
    for (int i = 0; i < index; ++i) offset += counts[static_cast<std::size_t>(i)];
    return {buffer, offset, counts[static_cast<std::size_t>(index)]};
}

namespace shared {  // through a staging area; ranks of one host
void all_reduce_one_shot(Builder& b, const Scope& s, const Staging& staging, Chunk input, Chunk output, bool finish);
void all_reduce_two_shot(Builder& b, const Scope& s, const Staging& staging, Chunk input, Chunk output, bool finish);
void reduce(Builder& b, const Scope& s, const Staging& staging, int root, Chunk input, Chunk output, bool finish);
void broadcast(Builder& b, const Scope& s, const Staging& staging, int root, Chunk buffer);
void broadcast_both(Builder& b, const Scope& s, const Staging& staging, int root, Chunk buffer);
void all_gather(Builder& b, const Scope& s, const Staging& staging, const std::vector<std::uint64_t>& counts);
void gather(Builder& b, const Scope& s, const Staging& staging, int root, const std::vector<std::uint64_t>& counts);
void gather_both(Builder& b, const Scope& s, const Staging& staging, int root,
                 const std::vector<std::uint64_t>& counts);
void scatter(Builder& b, const Scope& s, const Staging& staging, int root, const std::vector<std::uint64_t>& counts);
void reduce_scatter(Builder& b, const Scope& s, const Staging& staging, const std::vector<std::uint64_t>& counts);
void barrier(Builder& b, const Scope& s);
}  // namespace shared

namespace messages {  // over any transport
void all_reduce_direct(Builder& b, const Scope& s, Chunk input, Chunk output, bool finish);
void all_reduce_two_shot(Builder& b, const Scope& s, Chunk input, Chunk output, bool finish);
void all_reduce_ring(Builder& b, const Scope& s, Chunk input, Chunk output, std::uint64_t segment, bool finish);
void all_reduce_recursive_doubling(Builder& b, const Scope& s, Chunk input, Chunk output, bool finish);
void reduce_direct(Builder& b, const Scope& s, int root, Chunk input, Chunk output, bool finish);
void broadcast_chain(Builder& b, const Scope& s, int root, Chunk buffer, std::uint64_t segment);
void all_gather_direct(Builder& b, const Scope& s, const std::vector<std::uint64_t>& counts);
void all_gather_ring(Builder& b, const Scope& s, const std::vector<std::uint64_t>& counts);
void all_gather_bruck(Builder& b, const Scope& s, const std::vector<std::uint64_t>& counts);
void gather_direct(Builder& b, const Scope& s, int root, const std::vector<std::uint64_t>& counts);
void scatter_direct(Builder& b, const Scope& s, int root, const std::vector<std::uint64_t>& counts);
void reduce_scatter_direct(Builder& b, const Scope& s, const std::vector<std::uint64_t>& counts);
void reduce_scatter_ring(Builder& b, const Scope& s, const std::vector<std::uint64_t>& counts);
void all_to_all_pairwise(Builder& b, const Scope& s, const Request& request);
void barrier_dissemination(Builder& b, const Scope& s);
// recursive.cpp
void all_reduce_recursive_halving(Builder& b, const Scope& s, Chunk input, Chunk output, bool finish);
void reduce_scatter_recursive_halving(Builder& b, const Scope& s, const std::vector<std::uint64_t>& counts,
                                      bool finish);
void all_gather_recursive_doubling(Builder& b, const Scope& s, const std::vector<std::uint64_t>& counts);
// trees.cpp: k-nomial trees, k = radix >= 2
void broadcast_tree(Builder& b, const Scope& s, int radix, int root, Chunk buffer, std::uint64_t segment);
void reduce_tree(Builder& b, const Scope& s, int radix, int root, Chunk input, Chunk output, bool finish);
void gather_tree(Builder& b, const Scope& s, int radix, int root, const std::vector<std::uint64_t>& counts);
void scatter_tree(Builder& b, const Scope& s, int radix, int root, const std::vector<std::uint64_t>& counts);
}  // namespace messages

}  // namespace tutti::algorithm
