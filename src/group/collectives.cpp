#include "group/collectives.hpp"

#include "core/assert.hpp"
#include "group/foreign_transport.hpp"
#include "operation/channel.hpp"
#include "operation/recording.hpp"
#include "reduce/user.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <atomic>
#include <utility>

namespace tutti::detail {

Collectives::Collectives(const Parts& parts)
    : index_(parts.index),
      ranks_(parts.ranks),
      planner_(parts.planner),
      memory_(parts.memory),
      recorder_(parts.recorder),
      inquiry_(parts.inquiry),
      flight_(parts.flight),
      verdicts_(parts.verdicts),
      groups_(parts.groups),
      policies_(parts.policies),
      shares_memory_(
          std::ranges::all_of(ranks_.all(), [&](int rank) { return parts.neighbours.share_memory_with(rank); })),
      agreement_(memory_.arena(), memory_.own_local(), memory_.ranks_here()),
      in_slots_({.ranks = ranks_,
                 .memory = memory_,
                 .recorder = recorder_,
                 .inquiry = inquiry_,
                 .flight = flight_,
                 .agreement = agreement_,
                 .copy = policies_.small_copy}),
      bruck_(ranks_.rank(), ranks_.size()) {
    if (memory_.is_of_all()) planner_.use_slots();
    TUTTI_ASSERT(planner_.layout().size() == ranks_.size());
    context_.mailbox = &flight_.mailboxes().own();
    context_.rank = ranks_.rank();
    context_.world_of = ranks_.in_world();
    context_.channel = Channel::of_collective(index_, 0);
    context_.local_of = memory_.locals();
    context_.local_rank = memory_.own_local();
    context_.arena = memory_.arena();
    context_.symmetric = memory_.symmetric();
    context_.staging_copy = &policies_.staging_copy;
    context_.huge_pages = &policies_.huge_pages;
    if (memory_.arena() != nullptr && planner_.layout().pulls)
        context_.memory = [neighbours = &parts.neighbours](int rank) { return neighbours->memory_of(rank); };
}

void Collectives::talk_over(ForeignTransport& transport) {
    TUTTI_ASSERT(transport_ == nullptr && queue_.empty() && sequence_ == 0);
    transport_ = &transport;
    context_.mailbox = &transport.mailbox();
    planner_.use_library(shares_memory_);
    // Shared memory is the quickest way to meet, where there is some.
    before_library_.emplace(context_, planner_.plan({.collective = Collective::barrier, .rank = ranks_.rank()}),
                            shares_memory_ ? flight_.mailboxes().own() : transport.mailbox());
}

void Collectives::choose_path(Operation& operation) {
    TUTTI_ASSERT(operation.is_collective);
    operation.path = planner_.path(operation.call);
    operation.call.large = operation.path == Path::slots && !planner_.fits_in_slots(operation.call);
}

void Collectives::push(const std::shared_ptr<Operation>& operation) {
    TUTTI_ASSERT(operation->is_collective && operation->run.sequence > 0 && operation->run.sequence <= sequence_);
    if (!operation->path) choose_path(*operation);
    TUTTI_ASSERT(queue_.empty() || queue_.front()->run.sequence < operation->run.sequence);
    queue_.push(operation);
    flight_.activate(*this);
}

// ---- Progress

bool Collectives::progress() {
    bool moved = false;
    while (!queue_.empty()) {
        const std::shared_ptr<Operation> operation = queue_.front();
        const Turn turn = take_turn(*operation);
        if (failed()) return true;
        if (turn != Turn::advanced) return moved || turn == Turn::moved;
        moved = true;
        if (operation->run.state != OperationState::over) continue;
        inject_fault(*operation, true, true);
        TUTTI_ASSERT(queue_.front() == operation);
        queue_.pop();
        complete(operation, operation->run.failed);
    }
    return moved;
}

// After a failure it does no more.
Collectives::Turn Collectives::take_turn(Operation& operation) {
    switch (operation.run.state) {
        case OperationState::queued: start(operation); return Turn::advanced;
        case OperationState::in_slots:
            try {
                if (!in_slots_.advance(operation.call, operation.run.slot_state, operation.run.sequence,
                                       operation.run.ticket))
                    return Turn::blocked;
            } catch (const kernels::OperatorFailed& error) {
                verdicts_.fail_everywhere(error.what());
            }
            if (failed()) return Turn::advanced;
            if (operation.run.slot_state.large) {
                operation.path = planner_.path_by_messages(operation.call);
                begin_schedule(operation);
            } else
                operation.move_to(OperationState::over);
            return Turn::advanced;
        case OperationState::relayed:
        case OperationState::compared:
        case OperationState::scheduled: return run(operation);
        case OperationState::over: break;
    }
    return Turn::advanced;
}

Collectives::Turn Collectives::run(Operation& operation) {
    TUTTI_ASSERT(operation.run.execution != nullptr);
    const bool ran = flight_.run(*operation.run.execution);
    inject_fault(operation, ran, false);
    if (failed()) return Turn::advanced;
    if (const auto& other = operation.run.execution->mismatch()) {
        const auto [peer, theirs] = *other;
        inquiry_.mismatch(peer, operation.run.sequence, theirs, operation.call.fingerprint);
    }
    if (failed()) return Turn::advanced;
    if (!operation.run.execution->done()) return ran ? Turn::moved : Turn::blocked;
    operation.run.failed = operation.run.execution->error();
    const bool is_kept = operation.planned && !operation.run.execution->is_opaque();
    if (operation.run.state == OperationState::compared)
        before_library_->end(std::move(operation.run.execution));
    else if (operation.run.state == OperationState::scheduled && is_kept)
        operation.run.done_execution.reset(static_cast<engine::Execution*>(operation.run.execution.release()));
    else
        operation.run.execution.reset();
    if (operation.run.state == OperationState::relayed)
        end_relay(operation);
    else if (operation.run.state == OperationState::compared)
        begin_in_library(operation);
    else
        operation.move_to(OperationState::over);
    if (operation.run.state == OperationState::over && traits_of(operation.call.collective).exchanges())
        mailbox().checks().check_surplus(operation.run.channel, operation.call.fingerprint);
    flight_.mailboxes().heed();
    TUTTI_ASSERT(operation.run.execution == nullptr || operation.run.state == OperationState::scheduled);
    return Turn::advanced;
}

void Collectives::start(Operation& operation) {
    TUTTI_ASSERT(operation.run.state == OperationState::queued && operation.path.has_value());
    agreement_.remember(operation.run.sequence, operation.call.fingerprint);
    recorder_.start(operation.run.ticket);
    if (operation.path == Path::slots) {
        inject_fault(operation, false, true);  // in its one turn, before the others have this rank's part
        operation.run.slot_state = in_slots_.begin(operation.call);
        operation.move_to(OperationState::in_slots);
    } else {
        begin_schedule(operation);
        inject_fault(operation, false, false);
    }
}

void Collectives::begin_schedule(Operation& operation) {
    TUTTI_ASSERT(operation.run.execution == nullptr && operation.run.sequence > 0);
    const std::uint64_t fingerprint = operation.call.fingerprint;
    if (memory_.arena() != nullptr && ranks_.size() > 1) {
        // Of two ranks that disagree, the one that comes second sees the first: the fence keeps both from reading
        // before they have written (Dekker's algorithm: a full fence after the store, on either side). Not every
        // disagreement meets a message, as when ranks name different roots.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        check_records(operation.run.sequence);
        if (failed()) return;
    }
    operation.run.channel = Channel::of_collective(index_, operation.run.sequence);
    if (ranks_.size() > 1) mailbox().checks().check_unexpected(operation.run.channel, fingerprint);
    flight_.mailboxes().heed();
    if (failed()) return;
    const bool has_begun = operation.path == Path::library ? begin_before_library(operation)
                           : operation.path == Path::relay ? begin_bruck(operation)
                                                           : false;
    if (!has_begun) execute(operation);
}

// All ranks that mean the same decide alike.
bool Collectives::begin_before_library(Operation& operation) {
    TUTTI_ASSERT(transport_ != nullptr && before_library_.has_value());
    if (!transport_->offers(operation)) return false;
    operation.run.execution = before_library_->begin(operation.run.channel, operation.call.fingerprint);
    operation.move_to(OperationState::compared);
    return true;
}

// All ranks have come to it, and mean the same.
void Collectives::begin_in_library(Operation& operation) {
    TUTTI_ASSERT(transport_ != nullptr && operation.run.state == OperationState::compared);
    try {
        operation.run.execution = transport_->begin(operation);
        operation.move_to(OperationState::scheduled);
    } catch (const DistError&) {
        operation.run.failed = std::current_exception();
        operation.move_to(OperationState::over);
    }
}

bool Collectives::begin_bruck(Operation& operation) {
    const auto room = bruck_.room_for(operation.call.dtype, planner_.largest_relayed());
    if (!room) return false;
    TUTTI_ASSERT(*room <= planner_.largest_relayed());
    const BruckExchange::Pass pass = bruck_.begin(operation.call, operation.run.channel, *room);
    operation.run.execution = std::make_unique<engine::Execution>(planner_.plan(pass.request), pass.operands, context_);
    operation.move_to(OperationState::relayed);
    return true;
}

// Goes on with a schedule where some rank's blocks did not fit into its slots.
void Collectives::end_relay(Operation& operation) {
    TUTTI_ASSERT(operation.run.state == OperationState::relayed);
    const BruckExchange::Outcome outcome = bruck_.end(operation.call);
    if (const auto& found = outcome.difference)
        inquiry_.mismatch_of_blocks(found->peer, operation.run.sequence, operation.call.fingerprint, found->theirs,
                                    found->mine);
    else if (outcome.fitted)
        operation.move_to(OperationState::over);
    else
        execute(operation);
}

void Collectives::execute(Operation& operation) {
    const std::uint64_t largest = operation.run.slot_state.largest;
    Planner::Circumstances with{.symmetric = operation.is_symmetric,
                                .follows_slots = operation.run.slot_state.sequence > 0};
    if (largest != engine::SlotState::unknown) with.largest_bytes = largest;
    auto schedule = operation.schedule;
    if (!schedule)
        schedule =
            operation.quantized ? planner_.plan(operation.quantized->request) : planner_.plan(operation.call, with);
    TUTTI_ASSERT(schedule != nullptr);
    if (operation.run.done_execution) {
        operation.run.done_execution->restart(std::move(schedule), operation.operands());
        operation.run.execution = std::move(operation.run.done_execution);
    } else {
        operation.run.execution =
            std::make_unique<engine::Execution>(std::move(schedule), operation.operands(), context_);
    }
    TUTTI_ASSERT(operation.run.execution != nullptr && operation.run.done_execution == nullptr);
    operation.move_to(OperationState::scheduled);
}

void Collectives::complete(const std::shared_ptr<Operation>& operation, const std::exception_ptr& error) {
    TUTTI_ASSERT(operation->run.state == OperationState::over);
    recording::end(recorder_, ranks_, *operation, error == nullptr);
    flight_.complete(operation, error);
}

void Collectives::inject_fault(Operation& operation, bool moved, bool ends) {
    if (operation.run.fault)
        policies_.faults->turn(*operation.run.fault, moved, ends, flight_.links(), inquiry_.title_of(operation));
}

// ---- Checks

bool Collectives::has_finished(std::uint64_t sequence) const noexcept {
    return sequence <= sequence_ && (queue_.empty() || queue_.front()->run.sequence > sequence);
}

// A rank that disagrees about a collective has left the barrier of the one before. Of another group this rank knows
// only whether it has left it itself.
bool Collectives::ends_before(const rendezvous::Verdict& disagreement) const noexcept {
    if (queue_.empty()) return false;
    const auto& run = queue_.front()->run;
    if (run.state == OperationState::scheduled) return run.execution->is_opaque();
    const auto after = static_cast<std::int32_t>(disagreement.sequence - static_cast<std::uint32_t>(run.sequence));
    return run.state == OperationState::compared && disagreement.group == index_ && after > 0;
}

bool Collectives::has_sent_all(int peer, std::uint64_t sequence) const {
    TUTTI_ASSERT(peer < ranks_.size());
    if (has_finished(sequence)) return true;
    const auto operation = front();
    return operation && operation->run.sequence == sequence && operation->run.state == OperationState::scheduled &&
           operation->run.execution->has_sent_all(peer);
}

void Collectives::drop(const std::exception_ptr& error) {
    TUTTI_ASSERT(error != nullptr);
    const auto dropped = queue_.take();
    for (const auto& operation : dropped) {
        operation->run.execution.reset();
        // One whose part was done may have found, at its end, that another rank meant something else.
        if (operation->run.state != OperationState::over) operation->move_to(OperationState::over);
    }
    TUTTI_ASSERT(queue_.empty());
    for (const auto& operation : dropped) complete(operation, error);
}

void Collectives::record_waits(Instant since, Instant now) {
    waited_for_.clear();
    TUTTI_ASSERT(!queue_.empty());
    add_waits(*front(), waited_for_);
    recording::waits(recorder_, *front(), waited_for_, since, now);
    if (!recorder_.counts_operations()) return;
    for (const int rank : verdicts_.departed()) recording::gone(recorder_, ranks_, rank);
}

void Collectives::check_front(Instant now) {
    TUTTI_ASSERT(front() != nullptr);
    const std::shared_ptr<Operation> operation = front();
    if (operation->deadline.expired(now)) return inquiry_.time_out(*operation, waits_for(*operation));
    if (memory_.arena() != nullptr) check_records(operation->run.sequence);
    if (failed() || now < next_probe_) return;
    next_probe_ = now + std::chrono::milliseconds(200);
    if (now - operation->run.started >= std::chrono::milliseconds(100)) probe(*operation);
}

void Collectives::check_last() {
    if (memory_.arena() != nullptr && ranks_.size() > 1) check_records(sequence_);
}

// Asks the ranks that it waits for what they are doing; ranks that have left will not answer.
void Collectives::probe(const Operation& operation) {
    const auto gone = [&] {
        const std::vector<int> peers = waits_for(operation);
        const auto found = std::ranges::find_if(peers, [this](int peer) { return has_left(peer); });
        return found == peers.end() ? -1 : *found;
    };
    if (gone() >= 0) {
        // Messages and values from before it left may have come since this rank looked last.
        if (flight_.progress()) next_probe_ = {};
        if (failed() || front().get() != &operation || next_probe_ == Instant{}) return;
        if (const int peer = gone(); peer >= 0)
            return inquiry_.give_up(peer, verdicts_.gone(ranks_.global(peer), transport_));
    }
    // For ranks that share memory, records tell it (check_records), but not which blocks they exchange.
    const bool is_opaque = operation.run.execution && operation.run.execution->is_opaque();
    const bool asks_all = is_opaque || traits_of(operation.call.collective).exchanges();
    for (const int peer : is_opaque ? others() : waits_for(operation)) {
        if (asks_all || !memory_.is_shared_with(peer))
            mailbox_of_front().probe(ranks_.global(peer), operation.run.channel, operation.call.fingerprint);
    }
}

// And this rank has read all that it sent.
bool Collectives::has_left(int peer) const {
    TUTTI_ASSERT(peer >= 0 && peer < ranks_.size() && peer != ranks_.rank());
    if (memory_.is_left_by(peer)) return true;
    return groups_.has_left(index_, ranks_.global(peer)) || verdicts_.gone(ranks_.global(peer), transport_);
}

void Collectives::check_records(std::uint64_t sequence) {
    if (const auto found = agreement_.disagreement_at(sequence)) inquiry_.disagreement(*found);
}

std::vector<int> Collectives::others() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
        if (rank != ranks_.rank()) ranks.push_back(rank);
    }
    TUTTI_ASSERT(ranks.size() + 1 == static_cast<std::size_t>(ranks_.size()));
    return ranks;
}

std::vector<int> Collectives::waits_for(const Operation& operation) const {
    std::vector<int> ranks;
    add_waits(operation, ranks);
    return ranks;
}

void Collectives::add_waits(const Operation& operation, std::vector<int>& ranks) const {
    if (operation.run.execution)
        operation.run.execution->add_waits(ranks);
    else if (operation.run.state == OperationState::in_slots)
        in_slots_.add_waits(operation.call, operation.run.slot_state, ranks);
}

}  // namespace tutti::detail
