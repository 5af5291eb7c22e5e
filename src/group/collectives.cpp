// The collectives of a group on their way, and the ranks' findings about each other meanwhile.
#include "group/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::detail {

void Group::start(Operation& operation) {
    const std::uint64_t fingerprint = operation.operands.fingerprint;
    agreement_->remember(operation.sequence, fingerprint);
    recorder_.start(operation.ticket);
    if (make_short(operation)) {
        suffer(operation, false, true);  // in its one turn, before the others have this rank's part
        begin_short(operation);
    } else {
        begin_schedule(operation);
        suffer(operation, false, false);
    }
}

void Group::begin_schedule(Operation& operation) {
    const std::uint64_t fingerprint = operation.operands.fingerprint;
    if (memory_.arena() != nullptr && size() > 1) {
        // Of two ranks that disagree, the one that comes second sees the first: the fence keeps both from reading
        // before they have written (Dekker's algorithm: a full fence after the store, on either side). Not every
        // disagreement meets a message, as when ranks name different roots.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        check_records(operation.sequence);
        if (world_->flight().failure()) return;
    }
    if (const std::uint64_t largest = operation.slot_state.largest; largest != engine::SlotState::unknown)
        operation.request.largest_count = largest / size_of(operation.operands.dtype);
    operation.request.scheduled = true;
    operation.operands.channel = Channel::of_collective(index_, operation.sequence);
    if (size() > 1) world_->flight().mailbox().check_unexpected(operation.operands.channel, fingerprint);
    world_->flight().heed_mailbox();
    if (world_->flight().failure()) return;
    if (operation.quantized) {
        operation.execution = std::make_unique<engine::Quantized>(*operation.quantized, operation.operands, context_);
        return;
    }
    if (!begin_relay(operation)) execute(operation);
}

bool Group::begin_relay(Operation& operation) {
    if (operation.request.collective != Collective::all_to_all || size() < 4) return false;
    if (memory_.is_of_all() && planner_.named(Collective::all_to_all) != "bruck") return false;
    const auto room = relay_.room_for(operation.operands.dtype, planner_.largest_relayed());
    if (!room) return false;
    const Relay::Pass pass = relay_.begin(operation.request, operation.operands, *room);
    operation.relayed = true;
    operation.execution = std::make_unique<engine::Execution>(planner_.plan(pass.request), pass.operands, context_);
    return true;
}

// Goes on with a schedule where some rank's blocks did not fit into its slots.
void Group::end_relay(Operation& operation) {
    operation.relayed = false;
    const Relay::Outcome outcome = relay_.end(operation.request, operation.operands);
    if (const auto& found = outcome.difference)
        inquest_.mismatch_of_blocks(found->peer, operation.sequence, operation.operands.fingerprint, found->theirs,
                                    found->mine);
    else if (!outcome.fitted)
        execute(operation);
}

void Group::execute(Operation& operation) {
    operation.execution = std::make_unique<engine::Execution>(
        operation.schedule ? operation.schedule : planner_.plan(operation.request), operation.operands, context_);
}

bool Group::progress() {
    bool moved = false;
    while (!collectives_.empty()) {
        const std::shared_ptr<Operation> operation = collectives_.front();
        if (operation->slot_state.sequence == 0 && !operation->execution) {
            start(*operation);
            if (world_->flight().failure()) return true;
            moved = true;
        }
        if (operation->slot_state.sequence != 0 && !operation->execution) {
            if (!advance_short(*operation)) return moved;
            if (!world_->flight().failure() && operation->slot_state.large) begin_schedule(*operation);
            if (world_->flight().failure()) return true;
        }
        if (operation->execution) {
            const bool ran = world_->flight().run(*operation->execution);
            moved |= ran;
            suffer(*operation, ran, false);
            if (world_->flight().failure()) return true;
            if (const auto& other = operation->execution->mismatch()) {
                const auto [peer, theirs] = *other;
                inquest_.mismatch(peer, operation->sequence, theirs, operation->operands.fingerprint);
            }
            if (world_->flight().failure()) return true;
            if (!operation->execution->done()) return moved;
            operation->execution.reset();
            if (operation->relayed) end_relay(*operation);
            if (!operation->execution && operation->request.collective == Collective::all_to_all)
                world_->flight().mailbox().check_surplus(operation->operands.channel, operation->operands.fingerprint);
            world_->flight().heed_mailbox();
            if (world_->flight().failure()) return true;
            if (operation->execution) continue;
        }
        suffer(*operation, true, true);
        collectives_.pop_front();
        world_->flight().complete(operation, nullptr);
        moved = true;
    }
    return moved;
}

bool Group::has_finished(std::uint64_t sequence) const noexcept {
    return sequence <= sequence_ && (collectives_.empty() || collectives_.front()->sequence > sequence);
}

bool Group::has_sent_all(int peer, std::uint64_t sequence) const {
    if (has_finished(sequence)) return true;
    const auto operation = front();
    return operation && operation->sequence == sequence && operation->execution && !operation->relayed &&
           operation->execution->has_sent_all(peer);
}

void Group::drop(const std::exception_ptr& error) {
    const auto collectives = std::exchange(collectives_, {});
    for (const auto& operation : collectives) operation->execution.reset();
    for (const auto& operation : collectives) world_->flight().complete(operation, error);
}

void Group::check_front(Instant now) {
    const std::shared_ptr<Operation> operation = front();
    if (operation->deadline.expired(now)) return inquest_.time_out(*operation, waits_for(*operation));
    if (memory_.arena() != nullptr) check_records(operation->sequence);
    if (world_->flight().failure() || now < next_probe_) return;
    next_probe_ = now + std::chrono::milliseconds(200);
    if (now - operation->started >= std::chrono::milliseconds(100)) probe(*operation);
}

void Group::check_last() {
    if (memory_.arena() != nullptr && size() > 1) check_records(sequence_);
}

// Asks the ranks that it waits for what they are doing; ranks that have left will not answer.
void Group::probe(const Operation& operation) {
    const auto gone = [&] {
        const std::vector<int> peers = waits_for(operation);
        const auto found = std::ranges::find_if(peers, [this](int peer) { return has_left(peer); });
        return found == peers.end() ? -1 : *found;
    };
    if (gone() >= 0) {
        // Messages and values from before it left may have come since this rank looked last.
        if (world_->flight().progress()) next_probe_ = {};
        if (world_->flight().failure() || front().get() != &operation || next_probe_ == Instant{}) return;
        if (const int peer = gone(); peer >= 0) return give_up(peer);
    }
    // For ranks that share memory, records tell it (check_records), but not which blocks they exchange.
    const bool asks_all = operation.request.collective == Collective::all_to_all;
    for (const int peer : waits_for(operation)) {
        if (asks_all || !memory_.is_shared_with(peer))
            world_->flight().mailbox().probe(global(peer), operation.operands.channel, operation.operands.fingerprint);
    }
}

bool Group::is_in_vain(const Operation& message) const {
    const transport::Transfer& transfer = message.transfer;
    if (transfer.done || transfer.peer < 0 || transfer.peer == world_->rank()) return false;
    return transfer.refused || world_->verdicts().gone(transfer.peer).has_value();
}

void Group::give_up(int peer) {
    using rendezvous::VerdictKind;
    const int rank = global(peer);
    rendezvous::Verdict verdict = world_->verdicts().gone(rank).value_or(
        rendezvous::Verdict{VerdictKind::left, rank, fmt::format("rank {} has left the group", rank)});
    verdict.group = index_;
    world_->verdicts().tell(verdict, true);
}

// And this rank has read all that it sent.
bool Group::has_left(int peer) const {
    if (memory_.is_left_by(peer)) return true;
    return world_->groups().has_left(index_, global(peer)) || world_->verdicts().gone(global(peer));
}

void Group::check_records(std::uint64_t sequence) {
    if (const auto found = agreement_->disagreement_at(sequence)) disagreement(*found);
}

void Group::disagreement(const Agreement::Disagreement& found) {
    const int peer = memory_.ranks_here()[static_cast<std::size_t>(found.local)];
    if (found.theirs != found.mine) return inquest_.mismatch(peer, found.sequence, found.theirs, found.mine);
    inquest_.mismatch_before(peer, found.sequence);
}

std::vector<int> Group::waits_for(const Operation& operation) const {
    if (operation.execution) return operation.execution->waits_for();
    if (operation.slot_state.sequence != 0) return slots_->waits_for(operation.slot_call, operation.slot_state);
    if (!operation.is_collective && operation.transfer.peer >= 0) return {rank_of(operation.transfer.peer)};
    return {};
}

}  // namespace tutti::detail
