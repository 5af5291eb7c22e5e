// all_to_all among the small collectives (small.cpp). The sizes of the blocks differ by pair, so no rank can tell by
// itself whether all contributions fit. Each says it in its slot; if any does not fit, all see it, and all go on with a
// schedule.
#include "algorithm/slots.hpp"
#include "group/group.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::detail {
namespace {

using transport::RankControl;
using transport::SmallSlot;

// What an all_to_all's payload begins with: the bytes of every block, or one of these and the bytes of the largest.
// Then the area begins with a table of the blocks' bytes.
constexpr std::uint64_t blocks_too_large = ~std::uint64_t{0};
constexpr std::uint64_t blocks_by_table = blocks_too_large - 1;  // the blocks come after the table

// With more ranks than that no table fits. Blocks are then too large for a slot also when they have no bytes.
constexpr std::size_t table_ranks_max = RankControl::turn_area_bytes / sizeof(std::uint64_t);
static_assert(algorithm::slot_bytes(Collective::all_to_all, 3) <= RankControl::turn_area_bytes);

std::uint64_t word_of(const std::byte* words, std::size_t index) {
    std::uint64_t word = 0;
    std::memcpy(&word, words + index * sizeof word, sizeof word);
    return word;
}
void set_word(std::byte* words, std::size_t index, std::uint64_t word) {
    std::memcpy(words + index * sizeof word, &word, sizeof word);
}
// Bytes of the block for or from a peer.
std::uint64_t block_bytes(const SmallCall& call, std::span<const std::uint64_t> counts, int peer) {
    return counts.empty() ? call.block_bytes : counts[static_cast<std::size_t>(peer)] * size_of(call.dtype);
}
// Where a peer's block begins in its buffer; without offsets it follows `before` bytes of other ranks' blocks.
std::uint64_t block_begin(const SmallCall& call, std::span<const std::uint64_t> offsets, int peer,
                          std::uint64_t before) {
    return offsets.empty() ? before : offsets[static_cast<std::size_t>(peer)] * size_of(call.dtype);
}

}  // namespace

void SmallCall::set_blocks(std::span<const std::uint64_t> send, std::span<const std::uint64_t> receive) {
    const auto differs = [&](std::uint64_t other) { return other != send.front(); };
    if (std::ranges::none_of(send, differs) && std::ranges::none_of(receive, differs)) {
        block_bytes = send.front() * size_of(dtype);
    } else {
        send_counts = send;
        receive_counts = receive;
    }
}

void Group::note_splits(const SmallCall& call, record::Ticket ticket) {
    if (!call.send_counts.empty()) return recorder_.note_splits(ticket, call.send_counts, call.receive_counts);
    const std::vector<std::uint64_t> even(static_cast<std::size_t>(size_), call.block_bytes / size_of(call.dtype));
    recorder_.note_splits(ticket, even, even);
}

bool Group::blocks_fit(const SmallCall& call) const noexcept {
    const auto n = static_cast<std::size_t>(size_);
    if (n > table_ranks_max || named(call.collective)) return false;
    if (call.send_counts.empty() || !uses_shared_memory_only()) return is_small(call.collective, call.block_bytes);
    std::uint64_t left = std::min(RankControl::turn_area_bytes - n * sizeof(std::uint64_t),
                                  algorithm::slot_bytes(call.collective, size_));
    for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        const std::uint64_t bytes = block_bytes(call, call.send_counts, peer);
        if (bytes > left) return false;
        left -= bytes;
    }
    return true;
}

// Where the blocks of a rank's all_to_all lie, one after the other in the order of ranks, without its own: so that two
// ranks, who take turns with the area, write what they have read.
std::byte* Group::small_blocks(int rank, const SmallState& state, std::uint64_t head) const noexcept {
    const auto n = static_cast<std::size_t>(size_);
    if (head == blocks_by_table) return small_area(state, rank) + n * sizeof(std::uint64_t);
    if (sizeof head + n * head > SmallSlot::payload_bytes) return small_area(state, rank);
    return small_head(state, rank).payload() + sizeof head;
}

void Group::publish_blocks(const SmallCall& call, SmallState& state) {
    const std::uint64_t head = call.large                 ? blocks_too_large
                               : call.send_counts.empty() ? call.block_bytes
                                                          : blocks_by_table;
    const auto n = static_cast<std::size_t>(size_);
    std::byte* payload = small_head(state, rank_).payload();
    std::byte* table = small_area(state, rank_);
    set_word(payload, 0, head);
    state.large = call.large;
    if (n > table_ranks_max) return;
    state.largest = call.block_bytes;
    if (head >= blocks_by_table) {
        for (std::size_t peer = 0; peer < n; ++peer) {
            const std::uint64_t bytes = block_bytes(call, call.send_counts, static_cast<int>(peer));
            state.largest = std::max(state.largest, bytes);
            set_word(table, peer, bytes);
        }
        set_word(payload, 1, state.largest);
    }
    if (call.large) return;
    std::byte* to = small_blocks(rank_, state, head);
    std::uint64_t before = 0;
    for (int peer = 0; peer < size_; ++peer) {
        const std::uint64_t bytes = block_bytes(call, call.send_counts, peer);
        if (bytes > 0 && peer != rank_) {
            copy_payload(call, to, call.input + block_begin(call, call.send_offsets, peer, before), bytes);
            to += bytes;
        }
        before += bytes;
    }
}

// all_to_all: whether a peer's blocks are there, and that the one for this rank has the size that is expected.
void Group::check_blocks(const SmallCall& call, SmallState& state, std::uint64_t sequence, int peer) {
    const std::byte* payload = small_head(state, peer).payload();
    std::uint64_t theirs = word_of(payload, 0);
    if (theirs == blocks_too_large) state.large = true;
    if (static_cast<std::size_t>(size_) > table_ranks_max) return;
    state.largest = std::max(state.largest, theirs >= blocks_by_table ? word_of(payload, 1) : theirs);
    if (theirs >= blocks_by_table) theirs = word_of(small_area(state, peer), static_cast<std::size_t>(rank_));
    const std::uint64_t mine = block_bytes(call, call.receive_counts, peer);
    if (theirs == mine) return;
    mismatch_of_blocks(peer, sequence, call.fingerprint, theirs, mine);
}

void Group::take_blocks(const SmallCall& call, const SmallState& state) {
    std::uint64_t sent_before = 0, received_before = 0;
    for (int peer = 0; peer < rank_; ++peer) sent_before += block_bytes(call, call.send_counts, peer);
    for (int peer = 0; peer < size_; ++peer) {
        const std::uint64_t bytes = block_bytes(call, call.receive_counts, peer);
        if (bytes == 0) continue;
        const std::byte* from = call.input + block_begin(call, call.send_offsets, rank_, sent_before);
        if (peer != rank_) {
            const std::uint64_t head = word_of(small_head(state, peer).payload(), 0);
            from = small_blocks(peer, state, head);
            const std::byte* table = small_area(state, peer);
            for (int before = 0; before < rank_; ++before) {
                if (before == peer) continue;
                from += head == blocks_by_table ? word_of(table, static_cast<std::size_t>(before)) : head;
            }
        }
        std::memcpy(call.output + block_begin(call, call.receive_offsets, peer, received_before), from, bytes);
        received_before += bytes;
    }
}

}  // namespace tutti::detail
