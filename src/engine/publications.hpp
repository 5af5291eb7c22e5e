// Publications: the notices that ranks of a host exchange through the arena while they run schedules. A rank publishes
// what it has put into a slot of its ring, and releases publications that it no longer needs.
//
// All ranks number publications alike: a schedule has one for each of its rounds, and reserves their numbers when it
// begins, with those of the schedules that it may fall back to. A publication lies in a slot of its rank's ring in the
// staging area (transport/shm/LAYOUT.md).
//
// Invariants: a rank writes a slot again only after all ranks have released its former contents; it stores the stamp of
// a slot (the publication's number, plus 1) after the slot's contents, and a release after its reads.
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
    /// `context` must outlive the object.
    explicit Publications(RankContext& context);

    /// Reserves the numbers of a schedule that runs the collective with this channel and fingerprint.
    void begin(const schedule::Schedule& schedule, std::uint64_t channel, std::uint64_t fingerprint);
    /// Continues with the numbers of the fallback of `schedule`.
    void fall_back_from(const schedule::Schedule& schedule);
    /// Releases all publications before this schedule's: unused numbers need no room.
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
    /// How to copy into this publication's slot; null: by ordinary stores, since this rank was the last to read there
    /// and has the lines in its cache.
    transport::StagingCopy* copy_for(std::uint64_t publication) const noexcept {
        TUTTI_ASSERT(own_place(publication) < context_.read_last.size());
        return context_.read_last[own_place(publication)] ? nullptr : context_.staging_copy;
    }
    /// Notes that this rank has written the publication's slot.
    void note_written(std::uint64_t publication) {
        TUTTI_ASSERT(own_place(publication) < context_.read_last.size());
        context_.read_last[own_place(publication)] = false;
    }
    /// Announces the publication: the slot's contents, and this rank's writes into other ranks' buffers, are complete.
    void tell(std::uint64_t publication);
    /// Releases all earlier publications. In a schedule in place: announces that this rank has done all steps before
    /// this one (a signal).
    void release(std::uint64_t publication);

    // ---- The others'

    /// Whether the peer has made the publication, and has not revoked it.
    bool is_there(int peer, std::uint64_t publication) const;
    /// As is_there(), for the same operation: at the first contact with a peer this rank compares their calls.
    bool is_usable(int peer, std::uint64_t publication);
    /// A rank that has called something else, and its call's fingerprint.
    const std::optional<std::pair<int, std::uint64_t>>& mismatch() const noexcept { return mismatch_; }
    /// The contents of a peer's publication, for a read now.
    const std::byte* read(int peer, std::uint64_t publication) const;
    /// The peer's counter: it has released all publications before this number.
    const std::atomic<std::uint64_t>& released_by(int peer) const;
    /// Whether every other rank of this host has released all publications before this one.
    bool all_released(std::uint64_t publication) const;

    // ---- Call add(rank) for each rank that this one waits for

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
