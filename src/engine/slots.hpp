// Slots: short collectives among the ranks of one host. Each rank writes its contribution into a slot of its own,
// header and payload together, and reads the contributions that it needs from the others' slots. No allocation, no
// clock; one cache miss a peer where the payload is short.
//
// If all ranks wait for all, no rank is more than one collective ahead, and two slots suffice. Otherwise a rank may run
// ahead: the root of a broadcast and rank 0 of a scan wait for no rank. Before a rank reuses a slot, all ranks must
// have begun a later collective than the slot's; they begin it only when they have read all that they needed.
//
// Agreement. A slot carries a digest of this collective and of all before it. A rank that waits for another compares
// the digests, so it finds any disagreement up to then, also about a collective in which no rank had to wait (there
// ranks return without a fence or a check). A rank that runs out of slots finds the remaining disagreements
// (SlotEvents::look_back). So does the group, when it begins a collective that is not short, waits for a message,
// leaves, or waits for long: ranks that disagree may look for each other's contributions in different slots.
//
// all_to_all. The sizes of the blocks differ by pair, so no rank alone knows whether all contributions fit. Each rank
// says in its slot whether its own does; if any does not, all ranks see that and continue with a schedule
// (slots_blocks.cpp).
//
// gather_v and scatter_v. Only the root and a rank know the length of the block between them. In a gather_v each rank
// says in its slot how long its block is, and whether it lies there; the long ones follow in a schedule between their
// rank and the root, while all other ranks are through. In a scatter_v the root says it in its slot, of all blocks
// together.
//
// Nothing here blocks: advance() does all that it can do now. Threads: one at a time (the group's lock).
#pragma once

#include "core/assert.hpp"
#include "engine/call.hpp"
#include "reduce/reduce.hpp"
#include "schedule/slots.hpp"
#include "transport/shm/arena.hpp"
#include "transport/shm/staging_copy.hpp"

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tutti::engine {

/// The progress of one call in slots on this rank.
struct SlotState {
    std::uint64_t sequence = 0;  ///< its number among calls in slots; 0: it is not in slots
    std::uint64_t turn = 0;      ///< its number among calls in which all wait for all; 0: it is none
    std::uint64_t digest = 0;    ///< of this collective and all before it
    std::size_t head = 0;        ///< offset of its SmallHead in a rank's RankControl, in bytes
    bool is_short = false;       ///< the head is a ShortSlot's
    bool published = false;
    bool waited = false;  ///< for some rank's contribution
    bool large = false;   ///< some rank's contribution did not fit, and this rank has a part in it
    int next = 0;         ///< the rank whose contribution comes next
    static constexpr std::uint64_t unknown = ~std::uint64_t{0};
    std::uint64_t largest = unknown;  ///< all_to_all: bytes of the largest block known so far
};

/// The receiver of a call's events. After any of these the call may have failed.
template <class T>
concept SlotEvents = requires(T& events, int peer, std::uint64_t bytes) {
    { events.failed() } -> std::convertible_to<bool>;  // whether the call has failed; it then stops
    events.published();                        // this rank has published; others' contributions are on their way
    events.disagreement(peer);                 // the digests of this rank and the peer differ
    events.blocks_differ(peer, bytes, bytes);  // exchange: the peer sends the first, this rank expects the second
    events.look_back();  // this rank has read the others' progress: all have passed its last such look
};

/// Whether all blocks that `rank`, of `ranks`, sends in an exchange fit into its slot; on a rank that only receives,
/// whether those may fit that it expects. The answer may differ by rank.
bool blocks_fit_in_slot(const CollectiveCall& call, int rank, int ranks) noexcept;

/// One rank's side of the slots of a group.
class Slots {
 public:
    /// `rank`: this rank's number in the arena, of `size`; `copy`: for payloads that are longer than a slot's own.
    /// `ahead`: slots that a rank fills before it waits for their readers; a power of two.
    Slots(const transport::Arena& arena, int rank, int size, transport::StagingCopy* copy,
          std::uint64_t ahead = transport::RankControl::small_slots)
        : arena_(&arena), copy_(copy), rank_(rank), size_(size), ahead_(ahead), seen_(static_cast<std::size_t>(size)) {
        TUTTI_ASSERT(rank >= 0 && rank < size && size <= arena.layout().ranks);
        TUTTI_ASSERT(std::has_single_bit(ahead) && ahead <= transport::RankControl::small_slots);
    }

    /// Begins the next call; all ranks make the calls in the same order. The previous call must be over.
    SlotState begin(const CollectiveCall& call, std::uint64_t digest);
    /// Advances the call as far as the others' contributions allow. True: this rank is done with the call, or must
    /// continue with a schedule (state.large), or the call has failed.
    template <SlotEvents Events>
    bool advance(const CollectiveCall& call, SlotState& state, Events& events);

    /// The same for one collective, inlined into the caller: the fastest way.
    template <Collective c>
    SlotState begin_as(const CollectiveCall& call, std::uint64_t digest);
    template <Collective c, SlotEvents Events>
    bool advance_as(const CollectiveCall& call, SlotState& state, Events& events);

    /// The latest call that a rank has begun, as far as this one knows.
    std::uint64_t begun_by(int rank) const noexcept {
        TUTTI_ASSERT(static_cast<std::size_t>(rank) < seen_.size());
        return seen_[static_cast<std::size_t>(rank)];
    }
    /// Whether this rank still waits for `peer`'s contribution.
    bool awaits(const CollectiveCall& call, const SlotState& state, int peer) const noexcept;
    /// Adds the ranks that the call waits for now: for their contributions, or until they have read the next slot's
    /// former contents.
    void add_waits(const CollectiveCall& call, const SlotState& state, std::vector<int>& ranks) const;

 private:
    template <Collective c, SlotEvents Events>
    bool publish(const CollectiveCall& call, SlotState& state, Events& events);
    template <SlotEvents Events>
    bool reusable(const SlotState& state, Events& events);
    template <Collective c>
    void finish(const CollectiveCall& call, const SlotState& state) const;
    std::size_t head_ahead(const SlotState& state, std::uint64_t later) const noexcept;

    void copy_payload(const CollectiveCall& call, std::byte* to, const std::byte* from, std::size_t bytes) const;
    void publish_parts(const CollectiveCall& call, std::byte* to, std::size_t bytes) const;
    // slots_blocks.cpp
    std::byte* blocks(int rank, const SlotState& state, std::uint64_t head) const noexcept;
    void publish_blocks(const CollectiveCall& call, SlotState& state) const;
    std::optional<std::uint64_t> unexpected_block(const CollectiveCall& call, SlotState& state, int peer) const;
    void take_blocks(const CollectiveCall& call, const SlotState& state) const;
    std::byte* rooted_blocks(const CollectiveCall& call, const SlotState& state, int rank) const noexcept;
    void publish_rooted(const CollectiveCall& call, SlotState& state) const;
    std::optional<std::uint64_t> unexpected_rooted(const CollectiveCall& call, SlotState& state, int peer) const;
    void take_rooted(const CollectiveCall& call, const SlotState& state) const;

    transport::SmallHead& head(const SlotState& state, int rank) const noexcept {
        TUTTI_ASSERT(state.sequence > 0 && state.head > 0);
        TUTTI_ASSERT(rank >= 0 && rank < size_);
        std::byte* const control = reinterpret_cast<std::byte*>(&arena_->control(rank));
        return *reinterpret_cast<transport::SmallHead*>(control + state.head);
    }
    /// Where a payload lies that is too long to lie beside its head. If both of two ranks write, they take turns with
    /// both ranks' areas; a rank that writes alone uses its own areas.
    std::byte* area(const SlotState& state, int rank) const noexcept {
        TUTTI_ASSERT(state.sequence > 0);
        using transport::RankControl;
        if (state.turn == 0) return arena_->control(rank).area_ahead[state.sequence & (ahead_ - 1)];
        const int owner = arena_->in_turn(rank, state.turn, RankControl::in_turns);
        return arena_->control(owner).area_in_turn[state.turn % RankControl::in_turns];
    }
    /// Where a contribution of `bytes` bytes lies.
    [[gnu::always_inline]] std::byte* payload(const SlotState& state, int rank, std::size_t bytes) const noexcept {
        return bytes <= transport::SmallSlot::payload_bytes ? head(state, rank).payload() : area(state, rank);
    }

    const transport::Arena* arena_;
    transport::StagingCopy* copy_;
    int rank_;
    int size_;
    std::uint64_t ahead_;
    std::uint64_t sequence_ = 0;
    std::uint64_t turn_ = 0;           // calls so far in which all wait for all
    std::vector<std::uint64_t> seen_;  // by rank: the latest call that it has begun, as far as known
};

}  // namespace tutti::engine
