// Exchanges in the slots: a slot's description of its rank's blocks, and their places.
#include "core/assert.hpp"
#include "engine/slots.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::engine {
namespace {

using transport::RankControl;
using transport::SmallSlot;

// The start of an all_to_all's payload: the bytes of every block, or one of these and the bytes of the largest. With
// either of these the area begins with a table of the blocks' bytes.
constexpr std::uint64_t blocks_too_large = ~std::uint64_t{0};
constexpr std::uint64_t blocks_by_table = blocks_too_large - 1;  // the blocks come after the table

// With more ranks than that no table fits. Blocks are then too large for a slot also when they have no bytes.
constexpr std::size_t table_ranks_max = RankControl::turn_area_bytes / sizeof(std::uint64_t);
static_assert(schedule::slot_bytes(Collective::all_to_all, 3) <= RankControl::turn_area_bytes);

// The start of a gather_v's or scatter_v's payload: the bytes of its blocks, and whether these are too long to lie
// there. In a scatter_v a table of the blocks' bytes comes before the blocks.
constexpr std::uint64_t rooted_too_large = std::uint64_t{1} << 63;
std::size_t table_bytes(Collective collective, int ranks) {
    return collective == Collective::scatter_v ? static_cast<std::size_t>(ranks) * sizeof(std::uint64_t) : 0;
}

std::uint64_t word_of(const std::byte* words, std::size_t index) {
    std::uint64_t word = 0;
    std::memcpy(&word, words + index * sizeof word, sizeof word);
    return word;
}
void set_word(std::byte* words, std::size_t index, std::uint64_t word) {
    std::memcpy(words + index * sizeof word, &word, sizeof word);
}
// Where a peer's block begins in its buffer; without offsets it follows `before` bytes of other ranks' blocks.
std::uint64_t block_begin(const CollectiveCall& call, std::span<const std::uint64_t> offsets, int peer,
                          std::uint64_t before) {
    TUTTI_ASSERT(offsets.empty() || static_cast<std::size_t>(peer) < offsets.size());
    return offsets.empty() ? before : offsets[static_cast<std::size_t>(peer)] * size_of(call.dtype);
}

}  // namespace

bool blocks_fit_in_slot(const CollectiveCall& call, int rank, int ranks) noexcept {
    TUTTI_ASSERT(rank >= 0 && rank < ranks);
    TUTTI_ASSERT(traits_of(call.collective).exchanges());
    const auto n = static_cast<std::size_t>(ranks);
    const std::uint64_t room = schedule::slot_bytes(call.collective, ranks);
    if (traits_of(call.collective).is_rooted()) {
        std::uint64_t sum = table_bytes(call.collective, ranks);
        for (int peer = 0; peer < ranks; ++peer) {
            if (peer == rank || (rank != call.root && peer != call.root)) continue;
            const std::uint64_t bytes = std::max(call.sent_to(peer), call.received_from(peer));
            if (bytes > room) return false;
            if (rank == call.root && call.collective == Collective::scatter_v) sum += bytes;
        }
        return sum <= room;
    }
    if (n > table_ranks_max) return false;
    if (call.send_counts.empty()) return call.block_bytes <= schedule::longest_in_slot(call.collective, ranks);
    std::uint64_t left = std::min(RankControl::turn_area_bytes - n * sizeof(std::uint64_t), room);
    for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        const std::uint64_t bytes = call.sent_to(peer);
        if (bytes > left) return false;
        left -= bytes;
    }
    return true;
}

// Where the blocks of a rank's all_to_all lie, one after the other in the order of ranks, without its own: so that two
// ranks, which take turns with the area, write the lines that they have read.
std::byte* Slots::blocks(int rank, const SlotState& state, std::uint64_t said) const noexcept {
    const auto n = static_cast<std::size_t>(size_);
    if (said == blocks_by_table) return area(state, rank) + n * sizeof(std::uint64_t);
    if (sizeof said + n * said > SmallSlot::payload_bytes) return area(state, rank);
    return head(state, rank).payload() + sizeof said;
}

void Slots::publish_blocks(const CollectiveCall& call, SlotState& state) const {
    TUTTI_ASSERT(call.large || blocks_fit_in_slot(call, rank_, size_));
    const std::uint64_t said = call.large                 ? blocks_too_large
                               : call.send_counts.empty() ? call.block_bytes
                                                          : blocks_by_table;
    const auto n = static_cast<std::size_t>(size_);
    std::byte* const words = head(state, rank_).payload();
    std::byte* const table = area(state, rank_);
    set_word(words, 0, said);
    state.large = call.large;
    if (n > table_ranks_max) return;
    state.largest = call.block_bytes;
    if (said >= blocks_by_table) {
        for (std::size_t peer = 0; peer < n; ++peer) {
            const std::uint64_t bytes = call.sent_to(static_cast<int>(peer));
            state.largest = std::max(state.largest, bytes);
            set_word(table, peer, bytes);
        }
        set_word(words, 1, state.largest);
    }
    if (call.large) return;
    std::byte* to = blocks(rank_, state, said);
    std::uint64_t before = 0;
    for (int peer = 0; peer < size_; ++peer) {
        const std::uint64_t bytes = call.sent_to(peer);
        if (bytes > 0 && peer != rank_) {
            copy_payload(call, to, call.input + block_begin(call, call.send_offsets, peer, before), bytes);
            to += bytes;
        }
        before += bytes;
    }
}

// Takes note of a peer's description of its blocks. Returns the bytes of the one for this rank, if this rank expects
// another length.
std::optional<std::uint64_t> Slots::unexpected_block(const CollectiveCall& call, SlotState& state, int peer) const {
    TUTTI_ASSERT(peer >= 0 && peer < size_ && peer != rank_);
    const std::byte* const words = head(state, peer).payload();
    std::uint64_t theirs = word_of(words, 0);
    if (theirs == blocks_too_large) state.large = true;
    if (static_cast<std::size_t>(size_) > table_ranks_max) return std::nullopt;
    state.largest = std::max(state.largest, theirs >= blocks_by_table ? word_of(words, 1) : theirs);
    if (theirs >= blocks_by_table) theirs = word_of(area(state, peer), static_cast<std::size_t>(rank_));
    return theirs == call.received_from(peer) ? std::nullopt : std::optional(theirs);
}

void Slots::take_blocks(const CollectiveCall& call, const SlotState& state) const {
    TUTTI_ASSERT(!state.large && !call.large);
    TUTTI_ASSERT(static_cast<std::size_t>(size_) <= table_ranks_max);
    std::uint64_t sent_before = 0, received_before = 0;
    for (int peer = 0; peer < rank_; ++peer) sent_before += call.sent_to(peer);
    for (int peer = 0; peer < size_; ++peer) {
        const std::uint64_t bytes = call.received_from(peer);
        if (bytes == 0) continue;
        const std::byte* from = call.input + block_begin(call, call.send_offsets, rank_, sent_before);
        if (peer != rank_) {
            const std::uint64_t said = word_of(head(state, peer).payload(), 0);
            from = blocks(peer, state, said);
            const std::byte* const table = area(state, peer);
            for (int before = 0; before < rank_; ++before) {
                if (before == peer) continue;
                from += said == blocks_by_table ? word_of(table, static_cast<std::size_t>(before)) : said;
            }
        }
        std::memcpy(call.output + block_begin(call, call.receive_offsets, peer, received_before), from, bytes);
        received_before += bytes;
    }
}

// ---- Between the root and each rank

// Where the blocks of a rank lie that has published, or is about to: the table, if there is one, and what follows it.
std::byte* Slots::rooted_blocks(const CollectiveCall& call, const SlotState& state, int rank) const noexcept {
    const std::uint64_t said = word_of(head(state, rank).payload(), 0);
    const std::uint64_t bytes = (said & rooted_too_large) != 0 ? 0 : said;
    const std::size_t all = sizeof said + table_bytes(call.collective, size_) + bytes;
    return all <= SmallSlot::payload_bytes ? head(state, rank).payload() + sizeof said : area(state, rank);
}

void Slots::publish_rooted(const CollectiveCall& call, SlotState& state) const {
    TUTTI_ASSERT(call.large || blocks_fit_in_slot(call, rank_, size_));
    const bool scatters = call.collective == Collective::scatter_v;
    TUTTI_ASSERT(scatters == (rank_ == call.root));
    const auto is_sent = [&](int peer) { return peer != rank_ && (scatters || peer == call.root); };
    std::uint64_t sum = 0;
    for (int peer = 0; peer < size_; ++peer) sum += is_sent(peer) ? call.sent_to(peer) : 0;
    TUTTI_ASSERT(sum < rooted_too_large);
    state.large = call.large;
    set_word(head(state, rank_).payload(), 0, sum | (call.large ? rooted_too_large : 0));
    if (scatters && table_bytes(call.collective, size_) > RankControl::small_area_bytes) return;
    std::byte* const table = rooted_blocks(call, state, rank_);
    std::byte* to = table + table_bytes(call.collective, size_);
    std::uint64_t before = 0;
    for (int peer = 0; peer < size_; ++peer) {
        const std::uint64_t bytes = call.sent_to(peer);
        if (scatters) set_word(table, static_cast<std::size_t>(peer), bytes);
        if (is_sent(peer) && bytes > 0 && !call.large) {
            copy_payload(call, to, call.input + block_begin(call, call.send_offsets, peer, before), bytes);
            to += bytes;
        }
        before += bytes;
    }
}

// As unexpected_block().
std::optional<std::uint64_t> Slots::unexpected_rooted(const CollectiveCall& call, SlotState& state, int peer) const {
    TUTTI_ASSERT(peer >= 0 && peer < size_ && peer != rank_);
    std::uint64_t theirs = word_of(head(state, peer).payload(), 0);
    if ((theirs & rooted_too_large) != 0) state.large = true;
    theirs &= ~rooted_too_large;
    if (call.collective == Collective::scatter_v) {
        if (table_bytes(call.collective, size_) > RankControl::small_area_bytes) return std::nullopt;
        theirs = word_of(rooted_blocks(call, state, peer), static_cast<std::size_t>(rank_));
    }
    return theirs == call.received_from(peer) ? std::nullopt : std::optional(theirs);
}

// The root takes its own block from its input, which may lie in its place already.
void Slots::take_rooted(const CollectiveCall& call, const SlotState& state) const {
    const bool is_root = rank_ == call.root;
    const auto take = [&](std::byte* to, const std::byte* from, std::uint64_t bytes) {
        if (bytes > 0 && from != to) std::memcpy(to, from, bytes);
    };
    if (call.collective == Collective::scatter_v) {
        std::uint64_t before = 0;
        for (int peer = 0; peer < rank_ && is_root; ++peer) before += call.sent_to(peer);
        const std::byte* from = call.input + block_begin(call, call.send_offsets, rank_, before);
        if (!is_root) {
            const std::byte* const table = rooted_blocks(call, state, call.root);
            from = table + table_bytes(call.collective, size_);
            for (int peer = 0; peer < rank_; ++peer) {
                if (peer != call.root) from += word_of(table, static_cast<std::size_t>(peer));
            }
        }
        return take(call.output, from, call.received_from(call.root));
    }
    std::uint64_t before = 0;
    for (int peer = 0; peer < size_ && is_root; ++peer) {
        const std::uint64_t bytes = call.received_from(peer);
        std::byte* const to = call.output + block_begin(call, call.receive_offsets, peer, before);
        const bool is_here = peer == rank_ || (word_of(head(state, peer).payload(), 0) & rooted_too_large) == 0;
        if (is_here) take(to, peer == rank_ ? call.input : rooted_blocks(call, state, peer), bytes);
        before += bytes;
    }
}

}  // namespace tutti::engine
