// The input of plan(): the layout of a group's ranks, and the call of one of them. Values.
#pragma once

#include "algorithm/quantized.hpp"
#include "algorithm/tuning.hpp"
#include "core/assert.hpp"
#include "schedule/schedule.hpp"

#include <tutti/dtype.hpp>
#include <tutti/reduce_op.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::algorithm {

/// The layout of the ranks, and the capabilities of the transports. Equal on all ranks of a group.
struct Layout {
    std::vector<int> host_of;               ///< host index of each rank, 0 … hosts-1; size() is the number of ranks
    bool shared_memory = false;             ///< ranks of one host share a staging area
    std::uint64_t slot_bytes = 0;           ///< size of one slot of a rank's staging area
    std::uint32_t slots = 0;                ///< slots a rank owns: a multiple of four
    std::uint64_t segment_bytes = 1 << 20;  ///< how long a message may be before it is cut in pieces to overlap steps
    int machines = 1;                       ///< number of machines that the ranks run on, with any transport
    bool pulls = false;                     ///< ranks of one host read each other's memory for long messages
    Tuning tuning;
    int size() const { return static_cast<int>(host_of.size()); }
    bool one_host() const { return std::ranges::adjacent_find(host_of, std::ranges::not_equal_to{}) == host_of.end(); }
};

/// The call of one rank. Counts are in elements of `element_bytes`.
struct Request {
    Collective collective = Collective::barrier;
    Rank rank = 0;
    Rank root = 0;  ///< of a collective with a root
    std::uint64_t element_bytes = 1;
    std::optional<DType> dtype{};  ///< if known: a user's schedule may be for one type only
    std::uint64_t count = 0;       ///< elements of whole buffers (CollectiveTraits::Extent)
    /// Elements of each rank's block; the list is equal on all ranks. The blocks are adjacent, in rank order, in the
    /// buffer that holds them all.
    std::vector<std::uint64_t> counts;
    /// Exchanges: the blocks to and from each rank; they may lie anywhere (offsets) in input and output.
    std::vector<std::uint64_t> send_counts, send_offsets, receive_counts, receive_offsets;
    /// Exchanges: elements of the largest block that any rank sends, if all ranks know it.
    std::optional<std::uint64_t> largest_count;
    bool even = false;             ///< exchanges: all ranks know that every block has `largest_count` elements
    bool in_place = false;         ///< all_reduce, reduce on the root: `output` holds the input
    bool single_rounding = false;  ///< combine each element in one step (low-precision types need it)
    bool rank_order = false;       ///< combine strictly in the order of ranks 0, 1, … (layout_invariant)
    /// The group has symmetric memory, so buffers may lie in it: formulas do not choose then, since they describe
    /// ordinary memory.
    bool symmetric = false;
    bool staged = false;     ///< for ranks that cannot reach each other's buffers: nothing in place
    bool scheduled = false;  ///< not in slots: some rank's part does not fit, or the plan is for that case
    /// The algorithm to use; InvalidArgument if it does not exist or does not apply. "^ring": any but ring.
    std::optional<std::string> algorithm;
    std::optional<ReduceOp::Kind> op{};  ///< if known (premul_sum is a sum): a user's schedule may be for one operator
    std::optional<Quantizing> quantizing{};  ///< all_reduce, reduce_scatter, all_gather: messages hold codes
    bool operator==(const Request&) const = default;
};
// Buffers: broadcast uses `output` on every rank. reduce, gather: `output` only on the root (reduce leaves the
// others' input unchanged). scatter: `input` only on the root. barrier: none.

/// Gives an exchange blocks of `count` elements, as all ranks know, one after the other.
inline void set_even_blocks(Request& q, int ranks, std::uint64_t count) {
    const CollectiveTraits& traits = traits_of(q.collective);
    TUTTI_ASSERT(traits.exchanges() && q.rank >= 0 && q.rank < ranks);
    for (auto* const numbers : {&q.send_counts, &q.send_offsets, &q.receive_counts, &q.receive_offsets})
        numbers->clear();
    q.largest_count = count;
    q.even = true;
    std::uint64_t sent = 0, received = 0;
    for (Rank peer = 0; peer < ranks; ++peer) {
        q.send_offsets.push_back(sent);
        q.receive_offsets.push_back(received);
        q.send_counts.push_back(traits.exchanges_between(q.rank, peer, q.root) ? count : 0);
        q.receive_counts.push_back(traits.exchanges_between(peer, q.rank, q.root) ? count : 0);
        sent += q.send_counts.back();
        received += q.receive_counts.back();
    }
}

/// Whether a value of Request::algorithm excludes an algorithm: "^ring".
inline bool is_exclusion(std::string_view name) {
    return name.starts_with('^');
}

}  // namespace tutti::algorithm
