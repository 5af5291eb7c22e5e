#include "group/short_calls.hpp"

#include "core/assert.hpp"
#include "engine/slots-inl.hpp"
#include "group/collectives.hpp"
#include "world/local_policies.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tutti::detail {

using engine::CollectiveCall;
using engine::SlotState;

namespace {

// Turns for which a rank without a core of its own yields before it waits the ordinary way.
constexpr int turns_max = 100;
constexpr std::chrono::milliseconds turns_time{2};
// Before yielding, where the awaited ranks have other cores: about as long as a context switch.
constexpr int looks_before_yield = 30;

}  // namespace

ShortCalls::ShortCalls(Parts parts)
    : ranks_(parts.ranks),
      collectives_(parts.collectives),
      recorder_(parts.recorder),
      flight_(parts.flight),
      driver_(parts.driver),
      policies_(parts.policies),
      neighbours_(parts.neighbours),
      wait_for_call_(std::move(parts.wait_for_call)),
      closed_(policies_.faults != nullptr || parts.recorder.counts_operations()) {}

bool ShortCalls::run(const CollectiveCall& call, OperationMaker longer) {
    TUTTI_ASSERT(longer.make != nullptr);
    return engine::slots::by_collective(call.collective, [&]<Collective c> { return run_as<c>(call, longer); });
}

template <Collective c>
bool ShortCalls::run_as(const CollectiveCall& call, OperationMaker longer) {
    OperationsInFlight& flight = flight_;  // the compiler could not know that they stay where they are
    Collectives& collectives = collectives_;
    BiasedMutex::Entry entry(flight.mutex());
    if (!entry || !flight.quiet() || closed_) return false;
    const std::uint64_t sequence = collectives.next_number();
    TUTTI_ASSERT(sequence > 0);
    SlotState state = collectives.in_slots().begin_as<c>(call, sequence);
    record::Ticket ticket = 0;
    if (wait_briefly<c>(call, state, sequence, ticket) && !flight.failure() && !state.large) {
        recorder_.complete(ticket);
        last_.store(sequence, std::memory_order_relaxed);
        return true;
    }
    collectives.in_slots().record(call, sequence, ticket);
    go_on(entry, call, state, sequence, ticket, longer);
    return true;
}

// The call takes longer, or has failed: an ordinary operation from here on, which can time out, sleep and be
// interrupted.
void ShortCalls::go_on(BiasedMutex::Entry& entry, const CollectiveCall& call, const SlotState& state,
                       std::uint64_t sequence, record::Ticket ticket, OperationMaker longer) {
    TUTTI_ASSERT(ticket != 0 && sequence > 0);
    recorder_.prolong(ticket);
    if (flight_.failure()) {
        recorder_.end(ticket, record::State::failed);
        std::rethrow_exception(flight_.failure());
    }
    const std::shared_ptr<Operation> operation = longer.make(longer.call);
    TUTTI_ASSERT(operation != nullptr && !operation->done());
    operation->run.started = Clock::now();
    operation->deadline = Deadline::after(operation->timeout, operation->run.started);
    operation->run.sequence = sequence;
    operation->set_call(call);  // on the buffers with which it has begun
    operation->path = Path::slots;
    operation->run.slot_state = state;
    operation->run.ticket = ticket;
    operation->move_to(OperationState::in_slots);
    collectives_.push(operation);
    entry.leave();
    TUTTI_ASSERT(!entry);
    wait_for_call_(*operation, waiting_of(call, sequence));
    if (!operation->run.slot_state.large) last_.store(sequence, std::memory_order_relaxed);
}

// Other ranks may still be in the collective before this one, if that was longer, and need the core for it. This says
// nothing about how to wait in a row of short calls.
Waiting& ShortCalls::waiting_of(const CollectiveCall& call, std::uint64_t sequence) const noexcept {
    return last_.load(std::memory_order_relaxed) + 1 == sequence && !call.large ? driver_.brief_waiting()
                                                                                : driver_.waiting();
}

// Looks while that is the quickest way on; false: it takes longer.
template <Collective c>
[[gnu::always_inline]] inline bool ShortCalls::wait_briefly(const CollectiveCall& call, SlotState& state,
                                                            std::uint64_t sequence, record::Ticket& ticket) {
    SlotCollectives& in_slots = collectives_.in_slots();
    for (Waiting::Looks looks(waiting_of(call, sequence)); !in_slots.advance_as<c>(call, state, sequence, ticket);) {
        if (!looks.again()) return !driver_.waiting().has_own_core() && yield_briefly(call, state, sequence, ticket);
    }
    return true;
}

bool ShortCalls::yield_briefly(const CollectiveCall& call, SlotState& state, std::uint64_t sequence,
                               record::Ticket& ticket) {
    // More ranks than cores: the awaited ranks are most likely ready to run, and get this core, unless they have
    // others. This rank keeps the lock meanwhile, so not for long.
    Waiting& waiting = waiting_of(call, sequence);
    const Instant start = Clock::now();
    Instant now = start;
    for (int turn = 0; turn < turns_max && !waiting.sleeps_at_once() && flight_.sound(); ++turn) {
        if (awaits_only_others_cpus(call, state)) {
            for (int look = 0; look < looks_before_yield; ++look) {
                pause_cpu();
                if (collectives_.in_slots().advance(call, state, sequence, ticket)) return true;
            }
        }
        now = waiting.yield(now);
        if (collectives_.in_slots().advance(call, state, sequence, ticket)) {
            waiting.spared();
            return true;
        }
        if (now - start > turns_time) return false;
    }
    return false;
}

// None of the ranks whose contributions are missing needs this CPU.
bool ShortCalls::awaits_only_others_cpus(const CollectiveCall& call, const SlotState& state) {
    CpuBalancer* const balancer = policies_.cpu_balancer ? &*policies_.cpu_balancer : nullptr;
    if (balancer == nullptr) return false;
    balancer->observe();
    if (!state.published) return false;  // it waits for room, which any rank may have to make
    for (int peer = state.next; peer < ranks_.size(); ++peer) {
        if (peer != ranks_.rank() && balancer->is_here(neighbours_.local_of(ranks_.global(peer))) &&
            collectives_.in_slots().awaits(call, state, peer))
            return false;
    }
    return true;
}

}  // namespace tutti::detail
