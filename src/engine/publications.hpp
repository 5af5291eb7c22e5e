// Publications: what the ranks of a host tell each other through the arena while they run schedules: that a rank has
// put something into a slot of its ring (it publishes it), and that a rank needs earlier ones no longer (it releases
// them).
//
// A publication has a number, which all ranks count alike: a schedule has as many as it has rounds, and takes its
// numbers when it begins, with those of the schedules that it may fall back to. Its place is a slot of its rank's ring
// in the staging area (transport/shm/LAYOUT.md).
//
// Invariants: a slot is written again when all ranks have released what was in it; a stamp stands behind the contents
// that it tells of, a release behind the reads.
//
// Threads: one at a time (the group's lock); other ranks read the stamps and write their own.
#pragma once

#include "core/assert.hpp"
#include "engine/rank_context.hpp"
#include "schedule/schedule.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::engine {

class Publications {
 public:
    /// `context` must outlive it.
    explicit Publications(RankContext& context);

    /// Takes the numbers of a schedule that runs for the collective of that channel and fingerprint.
    void begin(const schedule::Schedule& schedule, std::uint64_t channel, std::uint64_t fingerprint);
    /// Goes on with those of the schedule that takes its place.
    void fall_back_from(const schedule::Schedule& schedule);
    /// Releases all that come before those of this schedule: numbers that nobody has used need no room.
    void skip_earlier();
    /// The number of a step's publication; that of round 0.
    std::uint64_t of(const schedule::Step& step) const noexcept { return base_ + step.round; }
    std::uint64_t first() const noexcept { return base_; }

    // ---- This rank's own

    /// Whether no rank needs the former contents of this publication's slot any more.
    bool has_room(std::uint64_t publication) const;
    std::byte* own_slot(std::uint64_t publication) const {
        TUTTI_ASSERT(context_.arena != nullptr);
        return context_.arena->slot(context_.local_rank, publication);
    }
    /// How to copy into that slot; null: by ordinary stores, for this rank was the last to read there, and has the
    /// lines in its cache.
    transport::StagingCopy* copy_for(std::uint64_t publication) const noexcept {
        TUTTI_ASSERT(own_place(publication) < context_.read_last.size());
        return context_.read_last[own_place(publication)] ? nullptr : context_.staging_copy;
    }
    /// This rank has written there.
    void note_written(std::uint64_t publication) {
        TUTTI_ASSERT(own_place(publication) < context_.read_last.size());
        context_.read_last[own_place(publication)] = false;
    }
    /// All others may look: the slot's contents, and what this rank has written in others' buffers, are there.
    void tell(std::uint64_t publication);
    /// This rank needs no earlier one. In a schedule in place: it has done all its steps before this one (a signal).
    void release(std::uint64_t publication);

    // ---- The others'

    /// Whether the peer has made the publication, and has not revoked it.
    bool is_there(int peer, std::uint64_t publication) const;
    /// The same, of an operation like this one: at the first contact this rank compares what the peer has called.
    bool is_usable(int peer, std::uint64_t publication);
    /// A rank that has called something else, and the fingerprint of that.
    const std::optional<std::pair<int, std::uint64_t>>& mismatch() const noexcept { return mismatch_; }
    /// The publication of a rank that this one reads now.
    const std::byte* read(int peer, std::uint64_t publication) const;
    /// Up to which publication a rank has released them.
    const std::atomic<std::uint64_t>& released_by(int peer) const;
    /// Whether every other rank of this host has released all publications before this one.
    bool all_released(std::uint64_t publication) const;

    // ---- Adds each rank that this one waits for to `ranks`, with `add`

    /// Until this publication has room.
    template <class F>
    void for_each_without_room(std::uint64_t publication, F add) const {
        for_each_unreleased(publication, context_.arena->layout().slots, add);
    }
    /// Until all have released what comes before it.
    template <class F>
    void for_each_unsettled(std::uint64_t publication, F add) const {
        for_each_unreleased(publication, 1, add);
    }

 private:
    template <class F>
    void for_each_unreleased(std::uint64_t publication, std::uint32_t slots, F add) const {
        context_.for_each_neighbour([&](int rank, int local) {
            if (context_.arena->control(local).released.load() + slots <= publication) add(rank);
        });
    }
    std::size_t own_place(std::uint64_t publication) const {
        return context_.arena->place(context_.local_rank, publication);
    }
    int local_of(int peer) const {
        TUTTI_ASSERT(static_cast<std::size_t>(peer) < context_.local_of.size());
        TUTTI_ASSERT(context_.local_of[static_cast<std::size_t>(peer)] >= 0);
        return context_.local_of[static_cast<std::size_t>(peer)];
    }

    RankContext& context_;
    std::uint64_t base_ = 0;  // publication of round 0
    std::uint64_t sequence_ = 0, fingerprint_ = 0;
    std::vector<bool> agreed_;  // by rank: its record has been compared
    std::optional<std::pair<int, std::uint64_t>> mismatch_;
};

}  // namespace tutti::engine
