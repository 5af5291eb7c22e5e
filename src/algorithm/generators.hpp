// The generators: each writes one rank's part of a collective into a schedule builder. Pure functions.
//
// A generator works among the ranks of a RankList (all ranks of a group, those of one host, or one leader of each
// host), so that hierarchical collectives are composed of simple ones. `me` and roots are positions in the list.
#pragma once

#include "algorithm/request.hpp"
#include "core/assert.hpp"
#include "schedule/builder.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace tutti::algorithm {

using schedule::Buffer;
using schedule::Builder;
using schedule::Chunk;
using schedule::Operand;

struct RankList {
    std::vector<Rank> ranks;
    int me = 0;
    int size() const { return static_cast<int>(ranks.size()); }
    Rank rank(int position) const {
        TUTTI_ASSERT(position >= 0 && position < size());
        return ranks[static_cast<std::size_t>(position)];
    }
};

/// The hosts of a group, from the point of view of one rank.
struct HostTopology {
    std::vector<std::vector<Rank>> hosts;  ///< the ranks of each host
    RankList inside;                       ///< the ranks of this rank's host
    RankList leaders;      ///< one rank of each host, by host: the root, else the lowest; me is -1 on other ranks
    RankList rail;         ///< the ranks at this rank's position in their hosts, by host
    int leader = 0;        ///< the leader of this host; a position in `inside`
    int leading_root = 0;  ///< the host of the root; a position in `leaders`
    bool even = false;     ///< all hosts have equally many ranks, so that each position has a complete rail
    HostTopology(const std::vector<int>& host_of, Rank me, Rank root);
    /// The same hosts and root as rank `me` sees them.
    void move_to(const std::vector<int>& host_of, Rank me);
    bool leads() const { return inside.me == leader; }

 private:
    int position_ = -1;  // whose rail it is
};

struct Context;

/// The ranks whose values a prefix combines: up to and including the rank itself, or only those before it.
enum class Prefix : std::uint8_t { inclusive, exclusive };

/// The staging area; sizes in elements.
struct Staging {
    std::uint64_t slot = 0;
};

/// `count` elements cut into `parts` pieces whose sizes differ by at most one; piece `index` as (offset, count).
inline Chunk piece_of(Chunk whole, int parts, int index) {
    TUTTI_ASSERT(parts > 0 && index >= 0 && index < parts);
    const auto p = static_cast<std::uint64_t>(parts);
    const auto i = static_cast<std::uint64_t>(index);
    const std::uint64_t base = whole.count / p, extra = whole.count % p;
    return {whole.buffer, whole.offset + i * base + std::min(i, extra), base + (i < extra ? 1 : 0)};
}
inline Chunk part(Chunk whole, std::uint64_t offset, std::uint64_t count) {
    return {whole.buffer, whole.offset + offset, count};
}
/// All ranks' blocks in a buffer that holds them one after the other.
inline std::vector<Chunk> blocks_of(Buffer buffer, const std::vector<std::uint64_t>& counts) {
    std::vector<Chunk> blocks;
    std::uint64_t offset = 0;
    for (const std::uint64_t count : counts) {
        blocks.push_back({buffer, offset, count});
        offset += count;
    }
    return blocks;
}
/// The block of rank `index` in a buffer that holds all blocks one after the other.
inline Chunk block_of(Buffer buffer, const std::vector<std::uint64_t>& counts, int index) {
    std::uint64_t offset = 0;
    TUTTI_ASSERT(index >= 0 && static_cast<std::size_t>(index) < counts.size());
    for (int i = 0; i < index; ++i) offset += counts[static_cast<std::size_t>(i)];
    return {buffer, offset, counts[static_cast<std::size_t>(index)]};
}

using Stage = std::function<void(std::uint64_t tile)>;
/// Writes the stages of tiles 0 … tiles - 1 as a pipeline: stage s of tile t comes beside stage 0 of tile t + s * lag.
inline void interleave(std::uint64_t tiles, std::span<const Stage> stages, std::uint64_t lag = 1) {
    TUTTI_ASSERT(lag > 0);
    if (stages.empty()) return;
    for (std::uint64_t tick = 0; tick < tiles + lag * (stages.size() - 1); ++tick) {
        // The stages before are through with all tiles.
        const std::uint64_t first = tick < tiles ? 0 : (tick - tiles) / lag + 1;
        for (std::uint64_t stage = first; stage < stages.size() && stage * lag <= tick; ++stage)
            stages[stage](tick - stage * lag);
    }
}
template <class... Stages>
void pipeline(std::uint64_t tiles, Stages... stages) {
    interleave(tiles, std::array<Stage, sizeof...(Stages)>{std::move(stages)...});
}

namespace shared {  // through a staging area; ranks of one host
void all_reduce_one_shot(Builder& b, const RankList& s, const Staging& staging, Chunk input, Chunk output, bool finish);
void all_reduce_two_shot(Builder& b, const RankList& s, const Staging& staging, Chunk input, Chunk output, bool finish);
/// Ranks other than the root need an output of reduce_work() elements to work in.
void reduce(Builder& b, const RankList& s, const Staging& staging, int root, Chunk input, Chunk output, bool finish);
/// Ranks other than the root need no output.
void reduce_one_shot(Builder& b, const RankList& s, const Staging& staging, int root, Chunk input, Chunk output,
                     bool finish);
std::uint64_t reduce_work(const RankList& s, const Staging& staging);
void broadcast(Builder& b, const RankList& s, const Staging& staging, int root, Chunk buffer);
/// `blocks`: the places of all ranks' blocks; `own`: this rank's values, which may already lie in its block.
void all_gather(Builder& b, const RankList& s, const Staging& staging, Chunk own, const std::vector<Chunk>& blocks);
void gather(Builder& b, const RankList& s, const Staging& staging, int root, const std::vector<std::uint64_t>& counts);
void scatter(Builder& b, const RankList& s, const Staging& staging, int root, const std::vector<std::uint64_t>& counts);
/// `blocks`: this rank's values for each rank; `own`: the place for the sum of all ranks' values for this rank.
void reduce_scatter(Builder& b, const RankList& s, const Staging& staging, const std::vector<Chunk>& blocks, Chunk own,
                    bool finish);
void all_to_all(Builder& b, const RankList& s, const Staging& staging, const Request& request);
/// Every block has `largest_count` elements, and one slot holds all blocks that a rank sends.
void all_to_all_even(Builder& b, const RankList& s, const Request& request);
/// The same for a gather_v or scatter_v.
void rooted_exchange_even(Builder& b, const RankList& s, const Request& request);
void barrier(Builder& b, const RankList& s);
void scan(Builder& b, const RankList& s, const Staging& staging, Chunk input, Chunk output,
          Prefix prefix);  // prefix.cpp
}  // namespace shared

/// In place: for ranks of one host that reach each other's buffers. in_place.cpp
namespace in_place {
/// For memory that all ranks map. `in_place`: the output holds the input.
void all_reduce(Builder& b, const RankList& s, Chunk input, Chunk output, bool in_place);
void reduce(Builder& b, const RankList& s, int root, Chunk input, Chunk output, bool in_place);
void reduce_scatter(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts);
void all_gather(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts);
void scatter(Builder& b, const RankList& s, int root, const std::vector<std::uint64_t>& counts);
/// `maps` false: also for memory that only the kernel can copy.
void broadcast(Builder& b, const RankList& s, int root, Chunk buffer, bool maps);
void gather(Builder& b, const RankList& s, int root, const std::vector<std::uint64_t>& counts, bool maps);
}  // namespace in_place

namespace messages {  // over any transport
void all_reduce_direct(Builder& b, const RankList& s, Chunk input, Chunk output, bool finish);
void all_reduce_two_shot(Builder& b, const RankList& s, Chunk input, Chunk output, bool finish);
void all_reduce_ring(Builder& b, const RankList& s, Chunk input, Chunk output, std::uint64_t segment, bool finish);
/// One of the ring_stages() of a ring over one block.
void all_reduce_ring_stage(Builder& b, const RankList& s, Chunk input, Chunk output, int stage, bool finish);
inline int ring_stages(const RankList& s) {
    return 2 * (s.size() - 1);
}
/// Whether this rank sends or receives anything in that stage of a ring over `count` elements: of fewer elements than
/// ranks most slices are empty.
inline bool works_in_ring_stage(const RankList& s, std::uint64_t count, int stage) {
    const int n = s.size(), sent = stage < n - 1 ? s.me - stage : s.me + n - stage;
    const auto has = [&](int slice) { return static_cast<std::uint64_t>(slice < 0 ? slice + n : slice % n) < count; };
    TUTTI_ASSERT(sent > -n && sent <= n);
    return count >= static_cast<std::uint64_t>(n) || has(sent) || has(sent - 1);
}
void all_reduce_recursive_doubling(Builder& b, const RankList& s, Chunk input, Chunk output, bool finish);
void reduce_direct(Builder& b, const RankList& s, int root, Chunk input, Chunk output, bool finish);
void broadcast_chain(Builder& b, const RankList& s, int root, Chunk buffer, std::uint64_t segment);
void all_gather_direct(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts);
void all_gather_ring(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts);
void all_gather_bruck(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts);
void gather_direct(Builder& b, const RankList& s, int root, const std::vector<std::uint64_t>& counts);
void scatter_direct(Builder& b, const RankList& s, int root, const std::vector<std::uint64_t>& counts);
void reduce_scatter_direct(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts);
void reduce_scatter_ring(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts);
/// `under_way_max`: the most elements that a rank sends before it waits until the first of them, and of those that
/// arrive meanwhile, are complete.
void all_to_all_pairwise(Builder& b, const RankList& s, const Request& request, std::uint64_t under_way_max);
/// A gather_v or scatter_v: a message between the root and each rank.
void rooted_exchange(Builder& b, const RankList& s, const Request& request);
/// All blocks have `largest_count` elements.
void all_to_all_bruck(Builder& b, const RankList& s, const Request& request);
void barrier_dissemination(Builder& b, const RankList& s);
/// A quantised all_reduce, reduce_scatter or all_gather. two_legs.cpp
void two_legs(Builder& b, const Context& c);
// prefix.cpp
void scan_direct(Builder& b, const RankList& s, Chunk input, Chunk output, Prefix prefix);
void scan_recursive_doubling(Builder& b, const RankList& s, Chunk input, Chunk output, Prefix prefix);
void scan_chain(Builder& b, const RankList& s, Chunk input, Chunk output, std::uint64_t segment, Prefix prefix);
// recursive.cpp
void all_reduce_recursive_halving(Builder& b, const RankList& s, Chunk input, Chunk output, bool finish);
void reduce_scatter_recursive_halving(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts,
                                      bool finish);
void all_gather_recursive_doubling(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts);
// circulant.cpp
void all_reduce_circulant(Builder& b, const RankList& s, Chunk input, Chunk output, bool finish);
void reduce_scatter_circulant(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts, bool finish);
void all_gather_circulant(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts);
// trees.cpp: k-nomial trees, k = radix >= 2
void broadcast_tree(Builder& b, const RankList& s, int radix, int root, Chunk buffer, std::uint64_t segment);
void reduce_tree(Builder& b, const RankList& s, int radix, int root, Chunk input, Chunk output, bool finish);
void gather_tree(Builder& b, const RankList& s, int radix, int root, const std::vector<std::uint64_t>& counts);
void scatter_tree(Builder& b, const RankList& s, int radix, int root, const std::vector<std::uint64_t>& counts);
}  // namespace messages

/// Shared memory inside a host, messages between hosts. `message`: how many elements go between hosts at a time.
namespace hosts {  // hosts.cpp
/// Rails need hosts of equally many ranks.
void all_reduce_rails(Builder& b, const HostTopology& s, const Staging& staging, Chunk input, Chunk output,
                      std::uint64_t message, bool finish);
/// `exchange`: sends everything at once, in one round inside hosts and one exchange between hosts; a slot must hold it.
void all_reduce_leaders(Builder& b, const HostTopology& s, const Staging& staging, Chunk input, Chunk output,
                        std::uint64_t message, bool exchange, bool finish);
void reduce(Builder& b, const HostTopology& s, const Staging& staging, Chunk input, Chunk output, std::uint64_t message,
            bool finish);
void broadcast(Builder& b, const HostTopology& s, const Staging& staging, Chunk buffer, std::uint64_t message);
void all_gather_rails(Builder& b, const HostTopology& s, const Staging& staging,
                      const std::vector<std::uint64_t>& counts, std::uint64_t message);
void reduce_scatter_rails(Builder& b, const HostTopology& s, const Staging& staging,
                          const std::vector<std::uint64_t>& counts, std::uint64_t message, bool finish);
void barrier(Builder& b, const HostTopology& s);
/// How many blocks of about `usual` elements, none of more than 1.5 times that: slightly more than a block would
/// otherwise become two of half the length, each with all the waiting of a whole one. None is empty unless there is
/// nothing.
inline int block_count(std::uint64_t count, std::uint64_t usual) {
    TUTTI_ASSERT(usual > 0);
    return static_cast<int>(std::max<std::uint64_t>(1, (count + usual / 2) / usual));
}
// circulant.cpp: as rails, but log2(hosts) rounds between the hosts. They need hosts of equally many ranks.
void all_reduce_circulant(Builder& b, const HostTopology& s, const Staging& staging, Chunk input, Chunk output,
                          std::uint64_t message, bool finish);
void reduce_scatter_circulant(Builder& b, const HostTopology& s, const Staging& staging,
                              const std::vector<std::uint64_t>& counts, bool finish);
void all_gather_circulant(Builder& b, const HostTopology& s, const Staging& staging,
                          const std::vector<std::uint64_t>& counts);
}  // namespace hosts

}  // namespace tutti::algorithm
