// SlotCollectives: the collectives of a group in slots (engine/slots), and the checks and records of such a call.
// Either the caller's thread runs the call at once (ShortCalls), or the call is an operation in the group's queue
// (Collectives).
//
// Threads: one at a time (the world's lock).
#pragma once

#include "core/assert.hpp"
#include "engine/slots.hpp"
#include "failure/failure_inquiry.hpp"
#include "group/group_memory.hpp"
#include "operation/agreement.hpp"
#include "operation/operation.hpp"
#include "operation/ranks.hpp"
#include "operation/recording.hpp"
#include "progress/operations_in_flight.hpp"
#include "record/recorder.hpp"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::detail {

class SlotCollectives {
 public:
    /// The parts of the group, and of its world. All must outlive it.
    struct Parts {
        const Ranks& ranks;
        const GroupMemory& memory;
        record::Recorder& recorder;
        FailureInquiry& inquiry;
        const OperationsInFlight& flight;
        Agreement& agreement;
        transport::StagingCopy& copy;  ///< copies short payloads
    };
    explicit SlotCollectives(const Parts& parts);

    /// Begins a call; its fingerprint must be in `agreement` already.
    engine::SlotState begin(const engine::CollectiveCall& call);
    /// Continues as far as the others' contributions allow. True: this rank's part is complete, or has to continue with
    /// a schedule (state.large), or the world has failed. `ticket`: 0 until the call is recorded.
    bool advance(const engine::CollectiveCall& call, engine::SlotState& state, std::uint64_t sequence,
                 record::Ticket& ticket);
    /// begin() and advance(), inlined into the caller (engine/slots-inl.hpp); begin_as() also remembers the
    /// fingerprint.
    template <Collective c>
    [[gnu::always_inline]] engine::SlotState begin_as(const engine::CollectiveCall& call, std::uint64_t sequence) {
        agreement_.remember(sequence, call.fingerprint);
        TUTTI_ASSERT(slots_.has_value() && sequence > 0);
        return slots_->begin_as<c>(call, agreement_.digest());
    }
    template <Collective c>
    [[gnu::always_inline]] bool advance_as(const engine::CollectiveCall& call, engine::SlotState& state,
                                           std::uint64_t sequence, record::Ticket& ticket) {
        Events events{*this, call, sequence, ticket};
        TUTTI_ASSERT(slots_.has_value());
        return slots_->advance_as<c>(call, state, events);
    }
    /// Records the call, unless it has a ticket already.
    void record(const engine::CollectiveCall& call, std::uint64_t sequence, record::Ticket& ticket) {
        if (ticket != 0) return;
        ticket = recorder_.begin_brief({.sequence = sequence,
                                        .fingerprint = call.fingerprint,
                                        .bytes = call.block_bytes,
                                        .peer = recorded_root(call.collective, call.root),
                                        .kind = recorded_kind(call.collective)});
        TUTTI_ASSERT(ticket != 0);
        if (traits_of(call.collective).exchanges() && recorder_.keeps_splits()) [[unlikely]]
            recording::note_splits(recorder_, ranks_, call, ticket);
    }

    /// Whether a call needs the contribution of `peer`, which has not arrived.
    bool awaits(const engine::CollectiveCall& call, const engine::SlotState& state, int peer) const noexcept {
        TUTTI_ASSERT(slots_.has_value() && peer >= 0 && peer < ranks_.size());
        return slots_->awaits(call, state, peer);
    }
    /// Adds the ranks for which the call waits now.
    void add_waits(const engine::CollectiveCall& call, const engine::SlotState& state, std::vector<int>& ranks) const {
        TUTTI_ASSERT(slots_.has_value());
        slots_->add_waits(call, state, ranks);
    }

 private:
    /// Handles what a call reports (engine::SlotEvents).
    struct Events {
        SlotCollectives& of;
        const engine::CollectiveCall& call;
        std::uint64_t sequence;
        record::Ticket& ticket;

        bool failed() const noexcept { return of.flight_.failure() != nullptr; }
        void published() { of.record(call, sequence, ticket); }
        void disagreement(int peer) {
            of.inquiry_.disagreement(of.agreement_.disagreement_with(of.memory_.local_of(peer), sequence));
        }
        void blocks_differ(int peer, std::uint64_t theirs, std::uint64_t mine) {
            of.inquiry_.mismatch_of_blocks(peer, sequence, call.fingerprint, theirs, mine);
        }
        // A rank that waits for no other compares the collectives up to its previous check of the other ranks.
        void look_back() {
            of.record(call, sequence, ticket);
            TUTTI_ASSERT(of.looked_back_to_ <= sequence);
            const std::uint64_t last = std::exchange(of.looked_back_to_, sequence);
            if (const auto found = of.agreement_.disagreement_at(last)) of.inquiry_.disagreement(*found);
        }
    };

    const Ranks& ranks_;
    const GroupMemory& memory_;
    record::Recorder& recorder_;
    FailureInquiry& inquiry_;
    const OperationsInFlight& flight_;
    Agreement& agreement_;
    std::optional<engine::Slots> slots_;  // set if all ranks share memory
    std::uint64_t looked_back_to_ = 0;    // the collective to compare when this rank next runs out of slots
};

}  // namespace tutti::detail
