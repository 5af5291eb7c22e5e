// SlotCollectives: the collectives of a group in slots (engine/slots), and what the group learns of a call on its way
// there. A call may be in the hands of its caller (ShortCalls) or an operation in the group's queue (Collectives).
//
// Threads: one at a time (the world's lock).
#pragma once

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
    /// Of the group, and of its world. All must outlive it.
    struct Parts {
        const Ranks& ranks;
        const GroupMemory& memory;
        record::Recorder& recorder;
        FailureInquiry& inquiry;
        const OperationsInFlight& flight;
        Agreement& agreement;
        transport::StagingCopy& copy;  ///< of short payloads
    };
    explicit SlotCollectives(const Parts& parts);

    /// Begins a call whose fingerprint `agreement` remembers.
    engine::SlotState begin(const engine::CollectiveCall& call);
    /// Goes on as far as the others' contributions allow; true when this rank is done with it, or has to go on with a
    /// schedule (state.large), or the world has failed. `ticket`: 0 until the recorder has heard of the call.
    bool advance(const engine::CollectiveCall& call, engine::SlotState& state, std::uint64_t sequence,
                 record::Ticket& ticket);
    /// The same two where the caller is (engine/slots-inl.hpp); the first also remembers the fingerprint.
    template <Collective c>
    [[gnu::always_inline]] engine::SlotState begin_as(const engine::CollectiveCall& call, std::uint64_t sequence) {
        agreement_.remember(sequence, call.fingerprint);
        return slots_->begin_as<c>(call, agreement_.digest());
    }
    template <Collective c>
    [[gnu::always_inline]] bool advance_as(const engine::CollectiveCall& call, engine::SlotState& state,
                                           std::uint64_t sequence, record::Ticket& ticket) {
        Events events{*this, call, sequence, ticket};
        return slots_->advance_as<c>(call, state, events);
    }
    /// The recorder hears of the call, once.
    void record(const engine::CollectiveCall& call, std::uint64_t sequence, record::Ticket& ticket) {
        if (ticket != 0) return;
        ticket = recorder_.begin_brief({.sequence = sequence,
                                        .fingerprint = call.fingerprint,
                                        .bytes = call.block_bytes,
                                        .peer = recorded_root(call.collective, call.root),
                                        .kind = recorded_kind(call.collective)});
        if (call.collective == Collective::all_to_all && recorder_.keeps_splits()) [[unlikely]]
            recording::note_splits(recorder_, ranks_, call, ticket);
    }

    /// Whether a call needs that rank's contribution, and it is not there yet.
    bool awaits(const engine::CollectiveCall& call, const engine::SlotState& state, int peer) const noexcept {
        return slots_->awaits(call, state, peer);
    }
    /// Adds the ranks that it waits for now.
    void add_waits(const engine::CollectiveCall& call, const engine::SlotState& state, std::vector<int>& ranks) const {
        slots_->add_waits(call, state, ranks);
    }

 private:
    /// The reports of a call (engine::SlotEvents).
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
        // Ranks that wait for none compare their collectives as of their last look at the others.
        void look_back() {
            of.record(call, sequence, ticket);
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
    std::optional<engine::Slots> slots_;  // where all ranks share memory
    std::uint64_t looked_back_to_ = 0;    // the collective that is compared when this rank runs out of slots
};

}  // namespace tutti::detail
