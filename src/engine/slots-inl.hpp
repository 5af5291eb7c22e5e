// The steps of a call in slots, instantiated in the caller: the compiler resolves the collective and the receiver of
// the events, so neither costs time at run time.
#pragma once

#include "core/assert.hpp"
#include "engine/slots.hpp"
#include "reduce/reduce.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::engine {
namespace slots {

using transport::RankControl;
using transport::ShortSlot;
using transport::SmallHead;
using transport::SmallSlot;

// A rank that waits for no other may run ahead: the ranks that read its contributions prefetch them this many slots in
// advance.
inline constexpr std::uint64_t fetched_ahead = 3;

// Collectives in which some ranks wait for no other: only the root contributes (from_root), only the root reads
// contributions (to_root), or a rank reads only those of the ranks before it (is_prefix).
constexpr bool from_root(Collective collective) {
    return traits_of(collective).root == CollectiveTraits::Root::source;
}
constexpr bool to_root(Collective collective) {
    return traits_of(collective).root == CollectiveTraits::Root::target;
}
constexpr bool is_prefix(Collective collective) {
    return traits_of(collective).is_prefix();
}
constexpr bool one_way(Collective collective) {
    return from_root(collective) || to_root(collective) || is_prefix(collective);
}
constexpr bool contributes(Collective collective, int root, int rank, int ranks) {
    if (from_root(collective)) return rank == root;
    if (is_prefix(collective)) return rank + 1 < ranks;
    return !to_root(collective) || rank != root;
}
constexpr bool needs(Collective collective, int root, int peer, int rank) {
    if (peer == rank) return false;
    if (from_root(collective)) return peer == root;
    if (is_prefix(collective)) return peer < rank;
    return !to_root(collective) || rank == root;
}

// As memcpy, but without a call for the few bytes that most contributions have.
[[gnu::always_inline]] inline void copy_few(std::byte* to, const std::byte* from, std::size_t bytes) {
    TUTTI_ASSERT(bytes == 0 || (to != nullptr && from != nullptr));
    if (bytes >= sizeof(std::uint64_t) && bytes <= 2 * sizeof(std::uint64_t)) {
        std::uint64_t head = 0, tail = 0;  // which may overlap
        std::memcpy(&head, from, sizeof head);
        std::memcpy(&tail, from + bytes - sizeof tail, sizeof tail);
        std::memcpy(to, &head, sizeof head);
        std::memcpy(to + bytes - sizeof tail, &tail, sizeof tail);
    } else if (bytes > 0) {
        std::memcpy(to, from, bytes);
    }
}

// Calls f<collective>(): the collective is resolved once, and not at every step on the way.
template <class F>
[[gnu::always_inline]] inline decltype(auto) by_collective(Collective collective, F f) {
    // clang-format off
    switch (collective) {
#define TUTTI_COLLECTIVE_KIND(name, ...) \
        case Collective::name: return f.template operator()<Collective::name>();
#include <tutti/collectives.def>
    }
    // clang-format on
    return f.template operator()<Collective::barrier>();
}

}  // namespace slots

// The offset of the head of the `later`-th next collective, if it is of the same kind.
[[gnu::always_inline]] inline std::size_t Slots::head_ahead(const SlotState& state,
                                                            std::uint64_t later) const noexcept {
    using namespace slots;
    TUTTI_ASSERT(state.sequence > 0);
    const std::size_t slot = (state.sequence + later) & (ahead_ - 1);
    return state.is_short ? offsetof(RankControl, short_ahead) + slot * sizeof(ShortSlot)
                          : offsetof(RankControl, ahead) + slot * sizeof(SmallSlot);
}

template <Collective c>
[[gnu::always_inline]] inline SlotState Slots::begin_as(const CollectiveCall& call, std::uint64_t digest) {
    TUTTI_ASSERT(call.collective == c);
    using namespace slots;
    SlotState state{.sequence = ++sequence_, .digest = digest};
    state.is_short =
        !traits_of(c).exchanges() && schedule::blocks_in_slot(c, size_) * call.block_bytes <= ShortSlot::payload_bytes;
    if (one_way(c)) {
        state.head = head_ahead(state, 0);
    } else {
        const std::uint64_t number = ++turn_;
        const std::size_t slot = number % RankControl::in_turns;
        state.head = state.is_short ? offsetof(RankControl, short_in_turns) + slot * sizeof(ShortSlot)
                                    : offsetof(RankControl, in_turn) + slot * sizeof(SmallSlot);
        state.turn = number;
    }
    // Released after this rank's reads for all earlier calls.
    TUTTI_ASSERT(state.head > 0 && (state.turn == 0) == one_way(c));
    arena_->control(rank_).small_begun.store(state.sequence, std::memory_order_release);
    return state;
}

inline SlotState Slots::begin(const CollectiveCall& call, std::uint64_t digest) {
    return slots::by_collective(call.collective, [&]<Collective c> { return begin_as<c>(call, digest); });
}

template <SlotEvents Events>
bool Slots::advance(const CollectiveCall& call, SlotState& state, Events& events) {
    return slots::by_collective(call.collective, [&]<Collective c> { return advance_as<c>(call, state, events); });
}

template <Collective c, SlotEvents Events>
[[gnu::always_inline]] inline bool Slots::advance_as(const CollectiveCall& call, SlotState& state, Events& events) {
    TUTTI_ASSERT(call.collective == c);
    TUTTI_ASSERT(state.sequence == sequence_ && state.next >= 0 && state.next <= size_);
    using namespace slots;
    if (!state.published && !publish<c>(call, state, events)) return events.failed();
    for (; state.next < size_; ++state.next) {
        const int peer = state.next;
        if (!needs(c, call.root, peer, rank_)) continue;
        const SmallHead& theirs = head(state, peer);
        if (!theirs.holds(state.sequence)) {
            state.waited = true;
            return false;
        }
        seen_[static_cast<std::size_t>(peer)] = state.sequence;
        if (theirs.agreement != state.digest) {
            events.disagreement(peer);
        } else if (traits_of(c).exchanges()) {
            if (const auto bytes =
                    one_way(c) ? unexpected_rooted(call, state, peer) : unexpected_block(call, state, peer))
                events.blocks_differ(peer, *bytes, call.received_from(peer));
        }
        if (events.failed()) return true;
        // A rank that had to wait is as fast as its peer: a prefetch would only take lines away that the peer is about
        // to write.
        if (one_way(c) && !state.waited)
            __builtin_prefetch(reinterpret_cast<const std::byte*>(&arena_->control(peer)) +
                               head_ahead(state, fetched_ahead));
    }
    if (!state.large || c == Collective::gather_v) finish<c>(call, state);
    return true;
}

// Writes this rank's contribution, if any rank waits for one; false while there is no room for it.
template <Collective c, SlotEvents Events>
[[gnu::always_inline]] inline bool Slots::publish(const CollectiveCall& call, SlotState& state, Events& events) {
    TUTTI_ASSERT(!state.published);
    using namespace slots;
    if (contributes(c, call.root, rank_, size_)) {
        constexpr bool has_blocks = traits_of(c).exchanges();
        const std::size_t bytes = schedule::blocks_in_slot(c, size_) * call.block_bytes;
        const bool inline_payload = !has_blocks && bytes <= SmallSlot::payload_bytes;
        if (one_way(c) && !reusable(state, events)) return false;
        SmallHead& own = head(state, rank_);
        own.agreement = state.digest;
        if (has_blocks)
            one_way(c) ? publish_rooted(call, state) : publish_blocks(call, state);
        else if (schedule::splits(c))
            publish_parts(call, payload(state, rank_, bytes), bytes);
        else if (!inline_payload)
            copy_payload(call, area(state, rank_), call.input, bytes);
        else
            copy_few(own.payload(), call.input, bytes);
        TUTTI_ASSERT(bytes <= schedule::slot_bytes(c, size_) || has_blocks);
        own.publish(state.sequence);
    }
    state.published = true;
    arena_->ring_all_doorbells(rank_);
    // A prefetch costs little here: the others' contributions are on their way meanwhile.
    if (!one_way(c) && size_ > 1) __builtin_prefetch(&head(state, rank_ == 0 ? 1 : 0));
    events.published();
    return true;
}

// Whether all ranks that needed this slot's former contents have read them.
template <SlotEvents Events>
inline bool Slots::reusable(const SlotState& state, Events& events) {
    TUTTI_ASSERT(state.sequence == sequence_);
    if (state.sequence <= ahead_) return true;
    bool looked = false;
    for (int peer = 0; peer < size_; ++peer) {
        std::uint64_t& seen = seen_[static_cast<std::size_t>(peer)];
        if (peer == rank_ || seen + ahead_ > state.sequence) continue;
        // Reading small_begun takes a cache line from a busy peer: wait until it frees several slots. Only such a read
        // counts, since the records are compared after it.
        const std::uint64_t begun = arena_->control(peer).small_begun.load(std::memory_order_acquire);
        if (begun + ahead_ / 2 < state.sequence) return false;
        seen = begun;
        looked = true;
    }
    if (looked) events.look_back();
    return !events.failed();
}

// Makes this rank's result; all contributions that it needs are there.
template <Collective c>
[[gnu::always_inline]] inline void Slots::finish(const CollectiveCall& call, const SlotState& state) const {
    TUTTI_ASSERT(state.published && state.next == size_);
    using namespace slots;
    if (traits_of(c).exchanges()) return one_way(c) ? take_rooted(call, state) : take_blocks(call, state);
    const std::size_t bytes = call.block_bytes;
    if (bytes == 0) return;
    const std::size_t published = bytes * schedule::blocks_in_slot(c, size_);
    const auto me = static_cast<std::size_t>(rank_);
    // A rank takes its own contribution from the caller's buffer, which may be where the result goes: if no rank waits
    // for it, it is nowhere else, and bytes written around the cache would have to be fetched from memory. `at`: where
    // the block for this rank lies among all blocks; `at_of_earlier`: in a slot without its contributor's block, if
    // that came before.
    constexpr bool split = schedule::splits(c);
    const std::size_t at = split ? me * bytes : 0, at_of_earlier = split ? at - bytes : 0;
    const auto part_for_me = [&](int rank) __attribute__((always_inline)) {
        const std::byte* const whole = rank == rank_ ? call.input : payload(state, rank, published);
        return whole + (rank < rank_ ? at_of_earlier : at);
    };
    const auto combine_more = [&]() __attribute__((noinline)) {
        const void* few[64];
        std::vector<const void*> many;
        const int end = traits_of(c).combined_end(rank_, size_);
        std::span<const void*> parts(few, static_cast<std::size_t>(std::min(end, 64)));
        if (end > 64) {
            many.resize(static_cast<std::size_t>(end));
            parts = many;
        }
        for (int r = 0; r < end; ++r) parts[static_cast<std::size_t>(r)] = part_for_me(r);
        kernels::combine({call.op, call.user}, call.dtype, call.output, parts, call.count, call.divisor);
    };
    const auto combine_parts = [&]() __attribute__((always_inline)) {
        if (size_ != 2 || is_prefix(c)) return combine_more();
        kernels::combine_pair({call.op, call.user}, call.dtype, call.output, part_for_me(0), part_for_me(1), call.count,
                              call.divisor);
    };
    if constexpr (traits_of(c).combines) {
        if (traits_of(c).writes(rank_, call.root)) combine_parts();
        return;
    }
    switch (c) {
        case Collective::broadcast:
            if (rank_ != call.root) copy_few(call.output, part_for_me(call.root), bytes);
            return;
        case Collective::scatter:
            if (const std::byte* const from = part_for_me(call.root); from != call.output)
                copy_few(call.output, from, bytes);
            return;
        case Collective::gather:
            if (rank_ != call.root) return;
            [[fallthrough]];
        case Collective::all_gather:
            for (int r = 0; r < size_; ++r) {
                std::byte* const to = call.output + static_cast<std::size_t>(r) * bytes;
                if (const std::byte* const from = part_for_me(r); from != to) copy_few(to, from, bytes);
            }
            return;
        default: return;
    }
}

}  // namespace tutti::engine
