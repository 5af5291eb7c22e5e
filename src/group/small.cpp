// Small collectives among the ranks of one host: each rank writes its contribution into a slot of its own, header and
// payload together, and reads what it needs from the others' slots. No schedule, no allocation, no clock; one cache
// miss a peer where the payload is short.
//
// Where all wait for all, nobody is more than one collective ahead, and two slots do. Where not, a rank may run ahead:
// the root of a broadcast waits for nobody. Before a slot is used again, all ranks must have begun a later small
// collective than the one that it holds, which they do only when they have read what they needed.
//
// Agreement. A slot carries a digest of this collective and of all before it. A rank that waits for another compares
// it, so it finds any disagreement up to then, also about a collective in which nobody had to wait: those that wait
// for nobody neither fence nor look, and return. What is left is found by a rank that runs out of slots, begins a
// collective that is not small, waits for a message, leaves, or waits for long: ranks that disagree may look for each
// other's contributions in different slots.
//
// all_to_all: small_blocks.cpp.
#include "algorithm/slots.hpp"
#include "group/fingerprint.hpp"
#include "group/group.hpp"
#include "reduce/few.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace tutti::detail {
namespace {

using algorithm::blocks_in_slot;
using algorithm::splits;
using transport::RankControl;
using transport::ShortSlot;
using transport::SmallHead;
using transport::SmallSlot;

// Ranks for which nobody waits run ahead: their contributions are fetched this many slots before they are needed.
constexpr std::uint64_t slots_ahead = 3;
// Turns for which a rank without a core of its own yields before it waits the ordinary way.
constexpr int turns_max = 100;
constexpr std::chrono::milliseconds turns_time{2};
// Before yielding, where those that are waited for have other cores: about as long as a change of context takes.
constexpr int looks_before_yield = 30;

// Only the root's contribution is needed, or only the root needs contributions: the other side does not wait.
constexpr bool from_root(Collective collective) {
    return collective == Collective::broadcast || collective == Collective::scatter;
}
constexpr bool to_root(Collective collective) {
    return collective == Collective::reduce || collective == Collective::gather;
}
constexpr bool one_way(Collective collective) {
    return from_root(collective) || to_root(collective);
}
constexpr bool contributes(Collective collective, int root, int rank) {
    if (from_root(collective)) return rank == root;
    return !to_root(collective) || rank != root;
}
constexpr bool needs(Collective collective, int root, int peer, int rank) {
    if (peer == rank) return false;
    if (from_root(collective)) return peer == root;
    return !to_root(collective) || rank == root;
}

// Calls f<collective>(): what differs by collective is decided once, and not at every step on the way.
template <class F>
[[gnu::always_inline]] inline decltype(auto) by_collective(Collective collective, F f) {
    switch (collective) {
        case Collective::all_reduce: return f.template operator()<Collective::all_reduce>();
        case Collective::broadcast: return f.template operator()<Collective::broadcast>();
        case Collective::reduce: return f.template operator()<Collective::reduce>();
        case Collective::all_gather: return f.template operator()<Collective::all_gather>();
        case Collective::gather: return f.template operator()<Collective::gather>();
        case Collective::scatter: return f.template operator()<Collective::scatter>();
        case Collective::reduce_scatter: return f.template operator()<Collective::reduce_scatter>();
        case Collective::all_to_all: return f.template operator()<Collective::all_to_all>();
        default: return f.template operator()<Collective::barrier>();
    }
}

[[gnu::always_inline]] inline record::Happening happening(const SmallCall& call, std::uint64_t sequence) {
    return {.sequence = sequence,
            .fingerprint = call.fingerprint,
            .bytes = call.block_bytes,
            .peer = recorded_root(call.collective, call.root),
            .kind = recorded_kind(call.collective)};
}

// Where the head lies of a collective that comes so many later, if it is of the same kind.
[[gnu::always_inline]] inline std::size_t head_ahead(const SmallState& state, std::uint64_t later) {
    const std::size_t slot = (state.sequence + later) % RankControl::small_slots;
    return state.is_short ? offsetof(RankControl, short_ahead) + slot * sizeof(ShortSlot)
                          : offsetof(RankControl, ahead) + slot * sizeof(SmallSlot);
}

// As memcpy, which is not called for the few bytes that most contributions have.
[[gnu::always_inline]] inline void copy_few(std::byte* to, const std::byte* from, std::size_t bytes) {
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

}  // namespace

bool Group::is_small(Collective collective, std::uint64_t block_bytes) const noexcept {
    if (!uses_shared_memory_only() || named(collective)) return false;
    return algorithm::fits_slot(collective, block_bytes, size_);
}

// The same, for an operation that was made the ordinary way. Fills in `operation.small` if it is small.
bool Group::make_small(Operation& operation) const {
    const algorithm::Request& request = operation.request;
    const engine::Operands& operands = operation.operands;
    if (!uses_shared_memory_only() || operation.quantized) return false;
    if (request.collective == Collective::all_to_all) {
        operation.small = {.collective = request.collective,
                           .input = operands.input,
                           .output = operands.output,
                           .dtype = operands.dtype,
                           .fingerprint = operands.fingerprint,
                           .send_offsets = request.send_offsets,
                           .receive_offsets = request.receive_offsets};
        operation.small.set_blocks(request.send_counts, request.receive_counts);
        operation.small.large = !blocks_fit(operation.small);
        return true;
    }
    std::uint64_t count = request.count;
    if (!request.counts.empty()) {
        count = request.counts.front();
        if (std::ranges::any_of(request.counts, [count](std::uint64_t other) { return other != count; })) return false;
    }
    const std::uint64_t block_bytes = count * request.element_bytes;
    if (!is_small(request.collective, block_bytes)) return false;
    const bool in_place = request.in_place || request.collective == Collective::broadcast;
    operation.small = {.collective = request.collective,
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

bool Group::run_small(const char* name, const SmallCall& call, std::chrono::milliseconds timeout) {
    return by_collective(call.collective, [&]<Collective c> { return run_small_as<c>(name, call, timeout); });
}

template <Collective c>
bool Group::run_small_as(const char* name, const SmallCall& call, std::chrono::milliseconds timeout) {
    BiasedMutex::Entry entry(world_->flight().mutex());
    if (!entry || !world_->flight().quiet() || !has_quick_way_) return false;
    const std::uint64_t sequence = ++sequence_;
    remember(sequence, call.fingerprint);
    SmallState state = begin_small_as<c>(call);
    if (wait_briefly<c>(call, state, sequence) && !world_->flight().failure() && !state.large) {
        recorder_.settle(state.ticket);
        return true;
    }
    go_on_small(entry, name, call, state, sequence, timeout);
    return true;
}

// It takes longer, or has failed: an ordinary operation from here on, which can time out, sleep and be interrupted.
void Group::go_on_small(BiasedMutex::Entry& entry, const char* name, const SmallCall& call, SmallState& state,
                        std::uint64_t sequence, std::chrono::milliseconds timeout) {
    record_small(call, state, sequence);
    recorder_.prolong(state.ticket);
    if (world_->flight().failure()) {
        recorder_.end(state.ticket, record::State::failed);
        std::rethrow_exception(world_->flight().failure());
    }
    const auto operation = call.ordinary != nullptr ? call.ordinary(call.arguments) : std::make_shared<Operation>();
    operation->timeout = timeout.count() > 0 ? timeout : this->timeout();
    operation->started = Clock::now();
    operation->deadline = Deadline::after(operation->timeout, operation->started);
    operation->group = shared_from_this();
    operation->sequence = sequence;
    if (call.ordinary == nullptr || !make_small(*operation)) {
        operation->name = name;
        operation->operands.fingerprint = call.fingerprint;
        operation->small = call;
    }
    operation->small_state = state;
    operation->ticket = state.ticket;
    collectives_.push_back(operation);
    world_->flight().activate(*this);
    entry.leave();
    world_->wait_for_call(*operation);
}

// Looks while that is the quickest way on; false: it takes longer.
template <Collective c>
[[gnu::always_inline]] inline bool Group::wait_briefly(const SmallCall& call, SmallState& state,
                                                       std::uint64_t sequence) {
    for (Waiting::Looks looks(world_->driver().waiting()); !advance_as<c>(call, state, sequence);) {
        if (!looks.again()) return !world_->driver().waiting().has_own_core() && yield_briefly(call, state, sequence);
    }
    return true;
}

bool Group::yield_briefly(const SmallCall& call, SmallState& state, std::uint64_t sequence) {
    // More ranks than cores: those that are waited for are most likely ready to run, and get this core, unless they
    // have others. The lock is kept meanwhile, so not for long.
    Waiting& waiting = world_->driver().waiting();
    const Instant start = Clock::now();
    Instant now = start;
    for (int turn = 0; turn < turns_max && !waiting.sleeps_at_once() && world_->flight().sound(); ++turn) {
        if (awaits_only_others_cpus(call, state)) {
            for (int look = 0; look < looks_before_yield; ++look) {
                pause_cpu();
                if (advance(call, state, sequence)) return true;
            }
        }
        now = waiting.yield(now);
        if (advance(call, state, sequence)) {
            waiting.spared();
            return true;
        }
        if (now - start > turns_time) return false;
    }
    return false;
}

// None of the ranks whose contributions are missing needs this CPU.
bool Group::awaits_only_others_cpus(const SmallCall& call, const SmallState& state) {
    Spread* const spread = world_->means().spread ? &*world_->means().spread : nullptr;
    if (spread == nullptr) return false;
    spread->note();
    if (!state.published) return false;  // it waits for room, which any rank may have to make
    for (int peer = state.next; peer < size_; ++peer) {
        if (needs(call.collective, call.root, peer, rank_) &&
            spread->is_here(world_->neighbours().local_of(global(peer))) &&
            !small_head(state, peer).holds(state.sequence))
            return false;
    }
    return true;
}

SmallState Group::begin_small(const SmallCall& call) {
    return by_collective(call.collective, [&]<Collective c> { return begin_small_as<c>(call); });
}

template <Collective c>
[[gnu::always_inline]] inline SmallState Group::begin_small_as(const SmallCall& call) {
    SmallState state{.sequence = ++small_sequence_};
    state.is_short =
        c != Collective::all_to_all && blocks_in_slot(c, size_) * call.block_bytes <= ShortSlot::payload_bytes;
    if (one_way(c)) {
        state.head = head_ahead(state, 0);
    } else {
        const std::uint64_t number = ++small_in_turn_;
        const std::size_t slot = number % RankControl::in_turns;
        state.head = state.is_short ? offsetof(RankControl, short_in_turns) + slot * sizeof(ShortSlot)
                                    : offsetof(RankControl, in_turn) + slot * sizeof(SmallSlot);
        state.turn = number;
    }
    // Behind what this rank has read of all before it.
    arena_->control(ground_.local_rank).small_begun.store(state.sequence, std::memory_order_release);
    return state;
}

// Goes on as far as the others' contributions allow; true when this rank is done with it, or has to go on with a
// schedule (state.large), or the group has failed.
bool Group::advance(const SmallCall& call, SmallState& state, std::uint64_t sequence) {
    return by_collective(call.collective, [&]<Collective c> { return advance_as<c>(call, state, sequence); });
}

template <Collective c>
[[gnu::always_inline]] inline bool Group::advance_as(const SmallCall& call, SmallState& state, std::uint64_t sequence) {
    if (!state.published && !publish<c>(call, state, sequence)) return world_->flight().failure() != nullptr;
    for (; state.next < size_; ++state.next) {
        const int peer = state.next;
        if (!needs(c, call.root, peer, rank_)) continue;
        const SmallHead& head = small_head(state, peer);
        if (!head.holds(state.sequence)) {
            state.waited = true;
            return false;
        }
        small_seen_[static_cast<std::size_t>(peer)] = state.sequence;
        if (head.agreement != agreement_)
            disagreement(peer, sequence);
        else if (c == Collective::all_to_all)
            check_blocks(call, state, sequence, peer);
        if (world_->flight().failure()) return true;
        // Who had to wait is as quick as the other: it would only take lines away that are about to be written.
        if (one_way(c) && !state.waited)
            __builtin_prefetch(reinterpret_cast<const std::byte*>(&arena_->control(peer)) +
                               head_ahead(state, slots_ahead));
    }
    if (!state.large) finish<c>(call, state);
    return true;
}

// Writes this rank's contribution, if any rank waits for one; false while there is no room for it.
template <Collective c>
[[gnu::always_inline]] inline bool Group::publish(const SmallCall& call, SmallState& state, std::uint64_t sequence) {
    if (contributes(c, call.root, rank_)) {
        constexpr bool blocks = c == Collective::all_to_all;
        const std::size_t bytes = blocks_in_slot(c, size_) * call.block_bytes;
        const bool inline_payload = !blocks && bytes <= SmallSlot::payload_bytes;
        if (one_way(c) && !reusable(call, state, sequence)) return false;
        SmallHead& head = small_head(state, rank_);
        head.agreement = agreement_;
        if (blocks)
            publish_blocks(call, state);
        else if (splits(c))
            publish_parts(call, small_payload(state, rank_, bytes), bytes);
        else if (!inline_payload)
            copy_payload(call, small_area(state, rank_), call.input, bytes);
        else
            copy_few(head.payload(), call.input, bytes);
        head.publish(state.sequence);
    }
    state.published = true;
    arena_->ring_all_doorbells(ground_.local_rank);
    // Here it costs little: the others' contributions are on their way meanwhile.
    if (!one_way(c) && size_ > 1) __builtin_prefetch(&small_head(state, rank_ == 0 ? 1 : 0));
    record_small(call, state, sequence);
    return true;
}

// Two ranks that take turns have in their caches what they write: there stores around them have nothing to win.
void Group::copy_payload(const SmallCall& call, std::byte* to, const std::byte* from, std::size_t bytes) {
    const bool in_turn = size_ == 2 && !one_way(call.collective);
    transport::copy_staged(in_turn ? nullptr : &world_->means().small_copy, to, from, bytes);
}

// Others' blocks, `bytes` in all, one after the other: two ranks, who take turns with the area, write what they have
// read.
void Group::publish_parts(const SmallCall& call, std::byte* to, std::size_t bytes) {
    const auto write = [&](std::byte* at, const std::byte* from, std::size_t count) {
        if (bytes <= SmallSlot::payload_bytes)
            copy_few(at, from, count);
        else if (count > 0)
            copy_payload(call, at, from, count);
    };
    const std::size_t before = static_cast<std::size_t>(rank_) * call.block_bytes;
    write(to, call.input, before);
    write(to + before, call.input + before + call.block_bytes, bytes - before);
}

void Group::record_small(const SmallCall& call, SmallState& state, std::uint64_t sequence) {
    if (state.ticket != 0) return;
    state.ticket = recorder_.begin_brief(happening(call, sequence));
    if (call.collective == Collective::all_to_all && recorder_.keeps_splits()) [[unlikely]]
        note_splits(call, state.ticket);
}

// Whether what this slot held before has been read by all who needed it.
inline bool Group::reusable(const SmallCall& call, SmallState& state, std::uint64_t sequence) {
    constexpr std::size_t depth = RankControl::small_slots;
    const std::uint64_t small_sequence = state.sequence;
    if (small_sequence <= depth) return true;
    bool looked = false;
    for (int peer = 0; peer < size_; ++peer) {
        std::uint64_t& seen = small_seen_[static_cast<std::size_t>(peer)];
        if (peer == rank_ || seen + depth > small_sequence) continue;
        // A look takes a cache line from a busy peer: wait until it is worth several places. Only such a look counts,
        // as after it the records are compared.
        const std::uint64_t begun = arena_->control(peer).small_begun.load(std::memory_order_acquire);
        if (begun + depth / 2 < small_sequence) return false;
        seen = begun;
        looked = true;
    }
    if (looked) compare_at_checkpoint(call, state, sequence);
    return world_->flight().failure() == nullptr;
}

// Ranks that wait for nobody compare what they did when they last looked at the others: all have come past that.
void Group::compare_at_checkpoint(const SmallCall& call, SmallState& state, std::uint64_t sequence) {
    record_small(call, state, sequence);
    check_records(small_checkpoint_);
    small_checkpoint_ = sequence;
}

// All contributions that this rank needs are there.
template <Collective c>
[[gnu::always_inline]] inline void Group::finish(const SmallCall& call, const SmallState& state) {
    if (c == Collective::all_to_all) return take_blocks(call, state);
    const std::size_t bytes = call.block_bytes;
    if (bytes == 0) return;
    const std::size_t published = bytes * blocks_in_slot(c, size_);
    const auto me = static_cast<std::size_t>(rank_);
    // A rank's own contribution is where the caller has it: for those for which nobody waits it is nowhere else, and
    // what was written around the cache would have to be fetched from memory. It may be where the result goes.
    // Where the block for this rank lies, among all or without the contributor's own one.
    constexpr bool split = splits(c);
    const std::size_t at = split ? me * bytes : 0, at_of_earlier = split ? at - bytes : 0;
    const auto part_for_me = [&](int rank) __attribute__((always_inline)) {
        const std::byte* const whole = rank == rank_ ? call.input : small_payload(state, rank, published);
        return whole + (rank < rank_ ? at_of_earlier : at);
    };
    const auto combine_more = [&]() __attribute__((noinline)) {
        const void* few[64];
        std::vector<const void*> many;
        std::span<const void*> parts(few, static_cast<std::size_t>(std::min(size_, 64)));
        if (size_ > 64) {
            many.resize(static_cast<std::size_t>(size_));
            parts = many;
        }
        for (int r = 0; r < size_; ++r) parts[static_cast<std::size_t>(r)] = part_for_me(r);
        kernels::combine(call.op, call.dtype, call.output, parts, call.count, call.divisor);
    };
    const auto combine_parts = [&]() __attribute__((always_inline)) {
        if (size_ != 2) return combine_more();
        kernels::combine_pair(call.op, call.dtype, call.output, part_for_me(0), part_for_me(1), call.count,
                              call.divisor);
    };
    switch (c) {
        case Collective::all_reduce:
        case Collective::reduce_scatter: return combine_parts();
        case Collective::reduce:
            if (rank_ == call.root) combine_parts();
            return;
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

std::vector<int> Group::missing(const SmallCall& call, const SmallState& state) const {
    std::vector<int> ranks;
    for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        const bool absent =
            state.published ? needs(call.collective, call.root, peer, rank_) &&
                                  small_head(state, peer).sequence.load() != state.sequence
                            : arena_->control(peer).small_begun.load() + RankControl::small_slots / 2 < state.sequence;
        if (absent) ranks.push_back(peer);
    }
    return ranks;
}

}  // namespace tutti::detail
