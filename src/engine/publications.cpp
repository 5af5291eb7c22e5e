#include "engine/publications.hpp"

#include "core/assert.hpp"

namespace tutti::engine {
namespace {

/// The first publication of a schedule, `next` or later.
std::uint64_t first_of(const schedule::Schedule& s, std::uint64_t next) {
    return s.turn_group ? (next + 3) / 4 * 4 : next;
}

}  // namespace

Publications::Publications(RankContext& context) : context_(context) {
    TUTTI_ASSERT(context.arena == nullptr ||
                 (context.local_rank >= 0 && context.local_rank < context.arena->layout().ranks));
    if (context.arena == nullptr) return;
    const transport::ArenaLayout& layout = context.arena->layout();
    context.read_last.resize(static_cast<std::size_t>(layout.ranks) * layout.slots);
}

// Of this schedule, and of those that it may fall back to: the same on all ranks of the host.
void Publications::begin(const schedule::Schedule& schedule, std::uint64_t channel, std::uint64_t fingerprint) {
    TUTTI_ASSERT(schedule.publications == 0 || context_.arena != nullptr);
    sequence_ = channel ^ context_.channel;
    fingerprint_ = fingerprint;
    mismatch_.reset();
    agreed_.assign(context_.local_of.size(), false);
    base_ = first_of(schedule, context_.first_publication);
    std::uint64_t end = base_;
    for (const schedule::Schedule* s = &schedule; s != nullptr; s = s->otherwise.get())
        end = first_of(*s, end) + s->publications;
    context_.first_publication = end;
    TUTTI_ASSERT(base_ <= end);
}

void Publications::fall_back_from(const schedule::Schedule& schedule) {
    TUTTI_ASSERT(schedule.otherwise != nullptr);
    base_ = first_of(*schedule.otherwise, base_ + schedule.publications);
    TUTTI_ASSERT(base_ + schedule.otherwise->publications <= context_.first_publication);
}

void Publications::skip_earlier() {
    TUTTI_ASSERT(context_.arena != nullptr);
    const auto& released = context_.arena->control(context_.local_rank).released;
    if (released.load(std::memory_order_relaxed) < base_) release(base_);
}

bool Publications::has_room(std::uint64_t publication) const {
    TUTTI_ASSERT(publication >= base_);
    const std::uint32_t slots = context_.arena->layout().slots;
    return publication < slots || all_released(publication - slots + 1);
}

void Publications::tell(std::uint64_t publication) {
    TUTTI_ASSERT(publication >= base_ && publication < context_.first_publication);
    const transport::Arena& arena = *context_.arena;
    // Behind the slot's contents, and behind this rank's earlier writes into others' buffers.
    arena.control(context_.local_rank)
        .stamps[publication % arena.layout().slots]
        .store(publication + 1, std::memory_order_release);
    arena.ring_all_doorbells(context_.local_rank);
}

void Publications::release(std::uint64_t publication) {
    TUTTI_ASSERT(publication >= base_ && publication <= context_.first_publication);
    // Behind all reads of earlier publications, and all accesses to anyone's buffers.
    context_.arena->control(context_.local_rank).released.store(publication, std::memory_order_release);
    context_.arena->ring_all_doorbells(context_.local_rank);
}

bool Publications::is_there(int peer, std::uint64_t publication) const {
    const transport::Arena& arena = *context_.arena;
    const auto& stamp = arena.control(local_of(peer)).stamps[publication % arena.layout().slots];
    // An acquire: all of this rank's reads from here on see the stores before the stamp.
    return stamp.load(std::memory_order_acquire) == publication + 1;
}

bool Publications::is_usable(int peer, std::uint64_t publication) {
    TUTTI_ASSERT(static_cast<std::size_t>(peer) < agreed_.size());
    if (!is_there(peer, publication)) return false;
    if (agreed_[static_cast<std::size_t>(peer)]) return true;
    const auto& record =
        context_.arena->control(local_of(peer)).records[sequence_ % transport::RankControl::record_count];
    // The peer's publication came after its record. A peer that is far ahead has overwritten the record; it could not
    // have come so far without us if it had not agreed.
    const auto theirs = record.read(sequence_, &transport::RankControl::Record::fingerprint);
    if (theirs && *theirs != fingerprint_) {
        mismatch_.emplace(peer, *theirs);
        return false;
    }
    agreed_[static_cast<std::size_t>(peer)] = true;
    return true;
}

const std::byte* Publications::read(int peer, std::uint64_t publication) const {
    context_.read_last[context_.arena->place(local_of(peer), publication)] = true;
    return context_.arena->slot(local_of(peer), publication);
}

const std::atomic<std::uint64_t>& Publications::released_by(int peer) const {
    return context_.arena->control(local_of(peer)).released;
}

bool Publications::all_released(std::uint64_t publication) const {
    TUTTI_ASSERT(context_.arena != nullptr);
    for (int r = 0; r < context_.arena->layout().ranks; ++r) {
        if (r != context_.local_rank &&  // an acquire: this rank's next writes stay behind the others' reads
            context_.arena->control(r).released.load(std::memory_order_acquire) < publication) {
            return false;
        }
    }
    return true;
}

}  // namespace tutti::engine
