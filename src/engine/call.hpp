// CollectiveCall: one rank's call of a collective, from the checks of its arguments to the bytes that it moves. The
// checks fill it in (api/call), an Operation keeps it, slots run it directly (slots.hpp), and a planner turns it into a
// request for the algorithms (algorithm/request.hpp).
#pragma once

#include "core/assert.hpp"
#include "tensor/user_operator.hpp"

#include <tutti/collectives.hpp>
#include <tutti/dtype.hpp>
#include <tutti/reduce_op.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::engine {

/// A part of a buffer, in bytes from its beginning.
struct Stretch {
    std::uint64_t at = 0, bytes = 0;
    bool operator==(const Stretch&) const = default;
};

/// A call refers to its caller's memory and lists. Counts and offsets are in elements: of `dtype`, or of an operator of
/// the caller.
struct CollectiveCall {
    Collective collective = Collective::barrier;
    int root = 0;
    const std::byte* input = nullptr;  ///< this rank's contribution, if it makes one
    std::byte* output = nullptr;
    std::size_t block_bytes = 0;  ///< bytes of one rank's block; without blocks, of the whole buffer
    std::uint64_t count = 0;      ///< elements of this block or buffer
    DType dtype = DType::uint8;
    ReduceOp::Kind op = ReduceOp::Kind::sum;
    const tutti::detail::UserOperator* user = nullptr;  ///< an operator of the caller, who keeps it
    bool in_place = false;                              ///< results overwrite the values: `input` is `output`
    std::uint64_t divisor = 1;
    std::uint64_t fingerprint = 0;

    /// Value of `block_bytes` for blocks of different lengths. Such calls do not fit slots, except exchanges
    /// (CollectiveTraits::exchanges), which have counts for each block.
    static constexpr std::size_t different = ~std::size_t{0};
    std::size_t element_bytes() const noexcept {
        return user == nullptr ? size_of(dtype) : user->parts().element_bytes;
    }
    /// Sets `count` and `block_bytes`; call it after setting `dtype` and `user`.
    void set_count(std::uint64_t elements) noexcept {
        count = elements;
        block_bytes = elements * element_bytes();
    }
    /// Elements of each rank's block if they differ; empty: `count` each. Not for an exchange.
    std::span<const std::uint64_t> counts;
    /// Sets these, or the count that all of them have. The counts stay where they are.
    void set_counts(std::span<const std::uint64_t> of_ranks) noexcept;
    std::uint64_t count_of(int rank) const noexcept {
        TUTTI_ASSERT(counts.empty() || static_cast<std::size_t>(rank) < counts.size());
        return counts.empty() ? count : counts[static_cast<std::size_t>(rank)];
    }

    // Exchanges only.
    std::span<const std::uint64_t> send_counts;  ///< by rank; empty: every block has `block_bytes`
    std::span<const std::uint64_t> receive_counts;
    std::span<const std::uint64_t> send_offsets;  ///< empty: one block after the other
    std::span<const std::uint64_t> receive_offsets;
    /// Sets these, or the count that all of them have. The counts stay where they are.
    void set_blocks(std::span<const std::uint64_t> send, std::span<const std::uint64_t> receive);
    /// Bytes of the blocks for and from a peer.
    std::uint64_t sent_to(int peer) const noexcept { return bytes_of_block(send_counts, peer); }
    std::uint64_t received_from(int peer) const noexcept { return bytes_of_block(receive_counts, peer); }
    bool large = false;  ///< this rank's blocks do not fit: it says so, and all go on with a schedule

    /// The parts of `input` that `rank`, of `ranks`, reads, and the parts of `output` that it writes: the whole, its
    /// own block, or a block for each rank, by rank; none if it reads or writes nothing. An empty block begins at 0.
    std::vector<Stretch> input_parts(int rank, int ranks) const;
    std::vector<Stretch> output_parts(int rank, int ranks) const;
    /// Call f(part) for each of these parts.
    template <class F>
    void for_each_input_part(int rank, int ranks, F&& f) const {
        for_each_part(traits_of(collective).input, rank, ranks, send_counts, send_offsets, f);
    }
    template <class F>
    void for_each_output_part(int rank, int ranks, F&& f) const {
        for_each_part(traits_of(collective).output, rank, ranks, receive_counts, receive_offsets, f);
    }
    /// Bytes of this rank's contribution; in a scatter, to which only the root contributes, the bytes that it gets.
    std::uint64_t contributed_bytes(int rank, int ranks) const noexcept;

 private:
    template <class F>
    void for_each_part(CollectiveTraits::Extent extent, int rank, int ranks,
                       std::span<const std::uint64_t> exchanged_counts,
                       std::span<const std::uint64_t> exchanged_offsets, F& f) const;
    std::uint64_t bytes_of_block(std::span<const std::uint64_t> of_peers, int peer) const noexcept {
        TUTTI_ASSERT(of_peers.empty() || static_cast<std::size_t>(peer) < of_peers.size());
        return of_peers.empty() ? block_bytes : of_peers[static_cast<std::size_t>(peer)] * size_of(dtype);
    }
};

template <class F>
void CollectiveCall::for_each_part(CollectiveTraits::Extent extent, int rank, int ranks,
                                   std::span<const std::uint64_t> exchanged_counts,
                                   std::span<const std::uint64_t> exchanged_offsets, F& f) const {
    TUTTI_ASSERT(rank >= 0 && rank < ranks);
    using Extent = CollectiveTraits::Extent;
    const std::size_t element = element_bytes();
    if (extent == Extent::whole) f(Stretch{0, count * element});
    if (extent == Extent::own_block) f(Stretch{0, count_of(rank) * element});
    if (extent != Extent::all_blocks && extent != Extent::exchanged) return;
    std::uint64_t before = 0;
    for (int peer = 0; peer < ranks; ++peer) {
        const bool is_block = extent == Extent::all_blocks;
        const std::uint64_t bytes = is_block ? count_of(peer) * element : bytes_of_block(exchanged_counts, peer);
        const std::uint64_t at = is_block || exchanged_offsets.empty()
                                     ? before
                                     : exchanged_offsets[static_cast<std::size_t>(peer)] * element;
        f(Stretch{bytes == 0 ? 0 : at, bytes});
        before += bytes;
    }
}

/// Appends the counts and offsets of all blocks, in elements, to the lists in `to`: counts, or send_counts,
/// send_offsets, receive_counts and receive_offsets.
template <class Lists>
void write_blocks(Lists& to, const CollectiveCall& call, int rank, int ranks) {
    TUTTI_ASSERT(rank >= 0 && rank < ranks);
    const CollectiveTraits& traits = traits_of(call.collective);
    if (traits.has_blocks()) {
        for (int r = 0; r < ranks; ++r) to.counts.push_back(call.count_of(r));
    }
    if (traits.input != CollectiveTraits::Extent::exchanged) return;
    const std::size_t element = call.element_bytes();
    call.for_each_input_part(rank, ranks, [&](const Stretch& part) {
        to.send_counts.push_back(part.bytes / element);
        to.send_offsets.push_back(part.at / element);
    });
    call.for_each_output_part(rank, ranks, [&](const Stretch& part) {
        to.receive_counts.push_back(part.bytes / element);
        to.receive_offsets.push_back(part.at / element);
    });
}

}  // namespace tutti::engine
