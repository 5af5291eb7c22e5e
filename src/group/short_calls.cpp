// Short calls: collectives that run in the slots of the ranks of this host (engine/slots). Here is their part in the
// group: which calls are short, how long the caller looks for the others before the call becomes an operation that can
// time out, sleep and be interrupted, and the reports to the recorder and the other ranks.
#include "group/short_calls.hpp"

#include "algorithm/plan.hpp"
#include "engine/slots-inl.hpp"
#include "group/group.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <cstddef>

namespace tutti::detail {

using engine::SlotCall;
using engine::SlotState;

namespace {

// Turns for which a rank without a core of its own yields before it waits the ordinary way.
constexpr int turns_max = 100;
constexpr std::chrono::milliseconds turns_time{2};
// Before yielding, where the awaited ranks have other cores: about as long as a context switch.
constexpr int looks_before_yield = 30;

}  // namespace

/// A short call's reports.
struct Collectives::SlotEvents {
    Collectives& group;
    const SlotCall& call;
    std::uint64_t sequence;
    record::Ticket& ticket;

    bool failed() const noexcept { return group.failed(); }
    void published() { group.record_short(call, sequence, ticket); }
    void disagreement(int peer) {
        const int local = group.context_.local_of[static_cast<std::size_t>(peer)];
        group.disagreement(group.agreement_.disagreement_with(local, sequence));
    }
    void blocks_differ(int peer, std::uint64_t theirs, std::uint64_t mine) {
        group.inquest_.mismatch_of_blocks(peer, sequence, call.fingerprint, theirs, mine);
    }
    // Ranks that wait for none compare their collectives as of their last look at the others.
    void look_back() {
        group.record_short(call, sequence, ticket);
        group.check_records(std::exchange(group.looked_back_to_, sequence));
    }
};

ShortCalls::ShortCalls(Group& group, Collectives& collectives)
    : group_(group),
      collectives_(collectives),
      flight_(group.world().flight()),
      driver_(group.world().driver()),
      means_(group.world().means()),
      neighbours_(group.world().neighbours()),
      closed_(means_.faults != nullptr || group.recorder().counts_operations()) {}

void Collectives::take_short_sizes(Collective collective) {
    short_sizes_[static_cast<std::size_t>(collective)] =
        slots_ ? algorithm::slot_sizes(planner_.layout(), collective, planner_.named(collective))
               : std::vector<algorithm::SlotSizes>();
}

bool Collectives::is_short(Collective collective, std::uint64_t block_bytes) const noexcept {
    for (const auto& [from, to] : short_sizes_[static_cast<std::size_t>(collective)]) {
        if (block_bytes >= from && block_bytes <= to) return true;
    }
    return false;
}

// Rules are for blocks of one length. For blocks of different lengths the longest decides, up to the longest block with
// which an even call can be short.
bool Collectives::blocks_fit(const SlotCall& call) const noexcept {
    if (call.send_counts.empty()) return is_short(call.collective, call.block_bytes) && slots_->blocks_fit(call);
    if (!slots_ || !slots_->blocks_fit(call)) return false;
    std::uint64_t longest = 0;
    for (int peer = 0; peer < ranks_.size(); ++peer) longest = std::max(longest, call.sent_to(peer));
    return is_short(call.collective, std::min(longest, schedule::longest_in_slot(call.collective, ranks_.size())));
}

// The same, for an operation that was made the ordinary way. Fills in `operation.slot_call` if it is short.
bool Collectives::make_short(Operation& operation) const {
    const algorithm::Request& request = operation.request;
    const engine::Operands& operands = operation.operands;
    if (!slots_ || operation.quantized) return false;
    if (request.collective == Collective::all_to_all) {
        operation.slot_call = {.collective = request.collective,
                               .input = operands.input,
                               .output = operands.output,
                               .dtype = operands.dtype,
                               .fingerprint = operands.fingerprint,
                               .send_offsets = request.send_offsets,
                               .receive_offsets = request.receive_offsets};
        operation.slot_call.set_blocks(request.send_counts, request.receive_counts);
        operation.slot_call.large = !blocks_fit(operation.slot_call);
        return true;
    }
    std::uint64_t count = request.count;
    if (!request.counts.empty()) {
        count = request.counts.front();
        if (std::ranges::any_of(request.counts, [count](std::uint64_t other) { return other != count; })) return false;
    }
    const std::uint64_t block_bytes = count * request.element_bytes;
    if (!is_short(request.collective, block_bytes)) return false;
    const bool in_place = request.in_place || request.collective == Collective::broadcast;
    operation.slot_call = {.collective = request.collective,
                           .root = request.root,
                           .input = in_place ? operands.output : operands.input,
                           .output = operands.output,
                           .block_bytes = block_bytes,
                           .count = count,
                           .dtype = operands.dtype,
                           .op = operands.op,
                           .divisor = operands.divisor,
                           .fingerprint = operands.fingerprint};
    return true;
}

bool ShortCalls::run(const char* name, const SlotCall& call, std::chrono::milliseconds timeout, OrdinaryCall ordinary) {
    return engine::slots::by_collective(call.collective,
                                        [&]<Collective c> { return run_as<c>(name, call, timeout, ordinary); });
}

template <Collective c>
bool ShortCalls::run_as(const char* name, const SlotCall& call, std::chrono::milliseconds timeout,
                        OrdinaryCall ordinary) {
    BiasedMutex::Entry entry(flight_.mutex());
    if (!entry || !flight_.quiet() || closed_) return false;
    const std::uint64_t sequence = collectives_.next_number();
    collectives_.agreement_.remember(sequence, call.fingerprint);
    SlotState state = collectives_.slots_->begin_as<c>(call, collectives_.agreement_.digest());
    record::Ticket ticket = 0;
    if (wait_briefly<c>(call, state, sequence, ticket) && !flight_.failure() && !state.large) {
        collectives_.recorder_.complete(ticket);
        return true;
    }
    collectives_.record_short(call, sequence, ticket);
    go_on(entry, name, call, state, sequence, ticket, timeout, ordinary);
    return true;
}

// The call takes longer, or has failed: an ordinary operation from here on, which can time out, sleep and be
// interrupted.
void ShortCalls::go_on(BiasedMutex::Entry& entry, const char* name, const SlotCall& call, const SlotState& state,
                       std::uint64_t sequence, record::Ticket ticket, std::chrono::milliseconds timeout,
                       OrdinaryCall ordinary) {
    collectives_.recorder_.prolong(ticket);
    if (flight_.failure()) {
        collectives_.recorder_.end(ticket, record::State::failed);
        std::rethrow_exception(flight_.failure());
    }
    const auto operation = ordinary.make != nullptr ? ordinary.make(ordinary.arguments) : std::make_shared<Operation>();
    operation->timeout = timeout.count() > 0 ? timeout : group_.timeout();
    operation->started = Clock::now();
    operation->deadline = Deadline::after(operation->timeout, operation->started);
    operation->group = group_.shared_from_this();
    operation->sequence = sequence;
    if (ordinary.make == nullptr || !collectives_.make_short(*operation)) {
        operation->name = name;
        operation->operands.fingerprint = call.fingerprint;
        operation->slot_call = call;
    }
    operation->slot_state = state;
    operation->ticket = ticket;
    operation->move_to(OperationState::in_slots);
    collectives_.push(operation);
    entry.leave();
    group_.world().wait_for_call(*operation);
}

// Looks while that is the quickest way on; false: it takes longer.
template <Collective c>
[[gnu::always_inline]] inline bool ShortCalls::wait_briefly(const SlotCall& call, SlotState& state,
                                                            std::uint64_t sequence, record::Ticket& ticket) {
    Collectives::SlotEvents events{collectives_, call, sequence, ticket};
    for (Waiting::Looks looks(driver_.waiting()); !collectives_.slots_->advance_as<c>(call, state, events);) {
        if (!looks.again()) return !driver_.waiting().has_own_core() && yield_briefly(call, state, sequence, ticket);
    }
    return true;
}

bool ShortCalls::yield_briefly(const SlotCall& call, SlotState& state, std::uint64_t sequence, record::Ticket& ticket) {
    // More ranks than cores: the awaited ranks are most likely ready to run, and get this core, unless they have
    // others. This rank keeps the lock meanwhile, so not for long.
    Waiting& waiting = driver_.waiting();
    const Instant start = Clock::now();
    Instant now = start;
    for (int turn = 0; turn < turns_max && !waiting.sleeps_at_once() && flight_.sound(); ++turn) {
        if (awaits_only_others_cpus(call, state)) {
            for (int look = 0; look < looks_before_yield; ++look) {
                pause_cpu();
                if (collectives_.advance_short(call, state, sequence, ticket)) return true;
            }
        }
        now = waiting.yield(now);
        if (collectives_.advance_short(call, state, sequence, ticket)) {
            waiting.spared();
            return true;
        }
        if (now - start > turns_time) return false;
    }
    return false;
}

// None of the ranks whose contributions are missing needs this CPU.
bool ShortCalls::awaits_only_others_cpus(const SlotCall& call, const SlotState& state) {
    CpuBalancer* const balancer = means_.cpu_balancer ? &*means_.cpu_balancer : nullptr;
    if (balancer == nullptr) return false;
    balancer->observe();
    if (!state.published) return false;  // it waits for room, which any rank may have to make
    for (int peer = state.next; peer < group_.size(); ++peer) {
        if (peer != group_.rank() && balancer->is_here(neighbours_.local_of(group_.global(peer))) &&
            collectives_.slots_->awaits(call, state, peer))
            return false;
    }
    return true;
}

bool Collectives::advance_short(const SlotCall& call, SlotState& state, std::uint64_t sequence,
                                record::Ticket& ticket) {
    SlotEvents events{*this, call, sequence, ticket};
    return slots_->advance(call, state, events);
}

void Collectives::begin_short(Operation& operation) {
    operation.slot_state = slots_->begin(operation.slot_call, agreement_.digest());
    operation.move_to(OperationState::in_slots);
}

void Collectives::record_short(const SlotCall& call, std::uint64_t sequence, record::Ticket& ticket) {
    if (ticket != 0) return;
    ticket = recorder_.begin_brief({.sequence = sequence,
                                    .fingerprint = call.fingerprint,
                                    .bytes = call.block_bytes,
                                    .peer = recorded_root(call.collective, call.root),
                                    .kind = recorded_kind(call.collective)});
    if (call.collective == Collective::all_to_all && recorder_.keeps_splits()) [[unlikely]]
        note_splits(call, ticket);
}

void Collectives::note_splits(const SlotCall& call, record::Ticket ticket) {
    if (!call.send_counts.empty()) return recorder_.note_splits(ticket, call.send_counts, call.receive_counts);
    const std::vector<std::uint64_t> even(static_cast<std::size_t>(ranks_.size()),
                                          call.block_bytes / size_of(call.dtype));
    recorder_.note_splits(ticket, even, even);
}

}  // namespace tutti::detail
