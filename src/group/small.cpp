// Small collectives among the ranks of one host: each rank writes its contribution into a slot of its own, header and
// payload together, and reads what it needs from the others' slots. No schedule, no allocation, no clock; one cache
// miss a peer where the payload is short.
//
// A rank may run ahead: the root of a broadcast waits for nobody. Before a slot is used again, all ranks must have
// begun a later small collective than the one that it holds, which they do only when they have read what they needed.
#include "core/pause.hpp"
#include "group/fingerprint.hpp"
#include "group/group.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <cstring>

namespace tutti::detail {
namespace {

using transport::RankControl;
using transport::SmallSlot;

// What one rank writes into its slot, in multiples of a block.
std::size_t blocks_published(Collective collective, int size) {
    switch (collective) {
        case Collective::scatter:
        case Collective::reduce_scatter: return static_cast<std::size_t>(size);
        case Collective::barrier: return 0;
        default: return 1;
    }
}

// Only the root's contribution is needed, or only the root needs contributions: the other side does not wait.
bool from_root(Collective collective) {
    return collective == Collective::broadcast || collective == Collective::scatter;
}
bool to_root(Collective collective) {
    return collective == Collective::reduce || collective == Collective::gather;
}

}  // namespace

bool Group::is_small(Collective collective, std::uint64_t block_bytes) const noexcept {
    if (!uses_shared_memory_only() || collective == Collective::all_to_all || named(collective)) return false;
    return block_bytes <= SmallSlot::payload_bytes / std::max<std::size_t>(1, blocks_published(collective, size_));
}

// The same, for an operation that was made the ordinary way. Fills in `operation.small` if it is small.
bool Group::make_small(Operation& operation) const {
    const algorithm::Request& request = operation.request;
    const engine::Operands& operands = operation.operands;
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
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || failure_ || has_verdict_.load(std::memory_order_relaxed) || !collectives_.empty() ||
        !messages_.empty()) {
        return false;
    }
    const std::uint64_t sequence = ++sequence_;
    remember(sequence, call.fingerprint);
    SmallState state{.sequence = ++small_sequence_};
    for (int spin = 0;; ++spin) {
        if (advance(call, state, sequence)) {
            if (failure_) std::rethrow_exception(failure_);
            return true;
        }
        if (spin >= spins_) break;
        pause_cpu();
    }
    // It takes longer: an ordinary operation from here on, which can time out, sleep and be interrupted.
    const auto operation = std::make_shared<Operation>();
    operation->name = name;
    operation->timeout = timeout.count() > 0 ? timeout : this->timeout();
    operation->started = Clock::now();
    operation->deadline = Deadline::after(operation->timeout, operation->started);
    operation->group = shared_from_this();
    operation->sequence = sequence;
    operation->operands.fingerprint = call.fingerprint;
    operation->small = call;
    operation->small_state = state;
    collectives_.push_back(operation);
    lock.unlock();
    wait(*operation, Deadline::never());
    if (const auto error = operation->error()) std::rethrow_exception(error);
    return true;
}

// Goes on as far as the others' contributions allow; true when this rank is done with it (or the group has failed).
bool Group::advance(const SmallCall& call, SmallState& state, std::uint64_t sequence) {
    if (!state.published) {
        if (!publish(call, state)) return false;
        state.published = true;
        const bool root = rank_ == call.root;
        if (size_ > 1 && ((from_root(call.collective) && root) || (to_root(call.collective) && !root))) {
            // This rank reads nothing of the others, so a disagreement must show here: as in start().
            std::atomic_thread_fence(std::memory_order_seq_cst);
            check_records(sequence, call.fingerprint);
            if (failure_) return true;
        }
    }
    for (; state.next < size_; ++state.next) {
        if (!waits_for(call, state.next)) continue;
        const SmallSlot& slot = small_slot(state.next, state.sequence);
        if (slot.sequence.load(std::memory_order_acquire) != state.sequence) return false;
        small_seen_[static_cast<std::size_t>(state.next)] = state.sequence;
        if (slot.fingerprint != call.fingerprint) {
            mismatch(state.next, sequence, slot.fingerprint, call.fingerprint, true);
            return true;
        }
    }
    finish(call, state);
    // The next slot is written soon: have its line here by then.
    __builtin_prefetch(&small_slot(rank_, state.sequence + 1), 1);
    return true;
}

bool Group::waits_for(const SmallCall& call, int peer) const noexcept {
    if (peer == rank_) return false;
    if (from_root(call.collective)) return peer == call.root;
    return !to_root(call.collective) || rank_ == call.root;
}

bool Group::publish(const SmallCall& call, const SmallState& state) {
    if (state.sequence > RankControl::small_slots) {
        const std::uint64_t begun = state.sequence - RankControl::small_slots + 1;  // by all, for the slot to be free
        for (int peer = 0; peer < size_; ++peer) {
            std::uint64_t& seen = small_seen_[static_cast<std::size_t>(peer)];
            if (peer == rank_ || seen >= begun) continue;
            for (std::uint64_t latest = state.sequence - 1; latest >= begun && seen < begun; --latest) {
                seen = std::max(seen, small_slot(peer, latest).sequence.load(std::memory_order_acquire));
            }
            if (seen < begun) return false;
        }
    }
    SmallSlot& slot = small_slot(rank_, state.sequence);
    slot.fingerprint = call.fingerprint;
    const bool contributes = !from_root(call.collective) || rank_ == call.root;
    const std::size_t bytes = contributes ? call.block_bytes * blocks_published(call.collective, size_) : 0;
    if (bytes > 0) std::memcpy(slot.payload.data(), call.input, bytes);
    slot.sequence.store(state.sequence, std::memory_order_release);
    arena_->ring_all_doorbells(ground_.local_rank);
    return true;
}

// All contributions that this rank needs are there.
void Group::finish(const SmallCall& call, const SmallState& state) {
    const std::size_t bytes = call.block_bytes;
    if (bytes == 0) return;
    const auto payload = [&](int rank) { return small_slot(rank, state.sequence).payload.data(); };
    const auto me = static_cast<std::size_t>(rank_);
    const auto combine_from = [&](std::size_t offset) {
        const void* few[64];
        std::vector<const void*> many;
        std::span<const void*> parts(few, static_cast<std::size_t>(std::min(size_, 64)));
        if (size_ > 64) {
            many.resize(static_cast<std::size_t>(size_));
            parts = many;
        }
        for (int r = 0; r < size_; ++r) parts[static_cast<std::size_t>(r)] = payload(r) + offset;
        kernels::combine(call.op, call.dtype, call.output, parts, call.count, call.divisor);
    };
    switch (call.collective) {
        case Collective::all_reduce: return combine_from(0);
        case Collective::reduce:
            if (rank_ == call.root) combine_from(0);
            return;
        case Collective::reduce_scatter: return combine_from(me * bytes);
        case Collective::broadcast:
            if (rank_ != call.root) std::memcpy(call.output, payload(call.root), bytes);
            return;
        case Collective::scatter: std::memcpy(call.output, payload(call.root) + me * bytes, bytes); return;
        case Collective::gather:
            if (rank_ != call.root) return;
            [[fallthrough]];
        case Collective::all_gather:
            for (int r = 0; r < size_; ++r) {
                std::memcpy(call.output + static_cast<std::size_t>(r) * bytes, payload(r), bytes);
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
            state.published
                ? waits_for(call, peer) && small_slot(peer, state.sequence).sequence.load() != state.sequence
                : small_seen_[static_cast<std::size_t>(peer)] + RankControl::small_slots <= state.sequence;
        if (absent) ranks.push_back(peer);
    }
    return ranks;
}

}  // namespace tutti::detail
