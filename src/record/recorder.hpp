// Recorder: a rank's latest operations in one group, in a ring of records (record/ring), with counters of all its
// operations there. It is always on: writing a record takes a reading of the clock and a few plain stores.
//
// Threads: begin() to note_wait() by one thread at a time (the group's lock); everything else by any thread at any
// time, without making the writer wait: readers leave out a record that changes while they read it.
#pragma once

#include "core/assert.hpp"
#include "record/counters.hpp"
#include "record/dump.hpp"
#include "record/ring.hpp"
#include "record/splits.hpp"
#include "record/statistics.hpp"
#include "record/ticks.hpp"
#include "record/waits.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tutti::record {

/// Describes a fingerprint (the packed description of a call) in words; supplied by the code that makes fingerprints.
using Describe = std::string (*)(std::uint64_t fingerprint);

class Recorder {
 public:
    static constexpr std::size_t capacity = Ring::capacity;

    /// `members`: empty for a group of all `size` ranks.
    Recorder(std::string group, int rank, int size, Describe describe, std::vector<int> members = {});
    ~Recorder();
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    /// The rank of this process in the world.
    int world_rank() const noexcept { return members_[rank_]; }
    /// Called once the ranks have met, since `world` is not known before. `home`: equal for all groups of one world.
    void set_world(std::uint64_t world, std::uint64_t home) noexcept {
        world_.store(world, std::memory_order_relaxed);
        home_.store(home, std::memory_order_relaxed);
    }

    /// Numbers the messages in one direction between this rank and `peer`, from 1; 0 for any peer (-1).
    std::uint64_t number_message(Kind kind, int peer) noexcept {
        if (peer < 0) return 0;
        TUTTI_ASSERT(is_message(kind) && static_cast<std::size_t>(peer) < sent_.size());
        return ++(kind == Kind::send ? sent_ : received_)[static_cast<std::size_t>(peer)];
    }
    /// Sets the sender of the message that a receive from any rank has received.
    void note_source(Ticket ticket, int peer) noexcept;
    /// Whether the sizes that each rank sends in an all_to_all are recorded (wants_splits).
    bool keeps_splits() const noexcept { return keeps_splits_; }
    /// Records the elements of an all_to_all, by rank.
    void note_splits(Ticket ticket, std::span<const std::uint64_t> sent, std::span<const std::uint64_t> received) {
        splits_.note(ticket, sent, received);
    }

    /// The statistics leave out what has the fingerprint 0: a probe waits for a message, and moves none.
    Ticket begin(const Happening& what, State state) noexcept {
        const std::uint64_t now = ticks();
        if (statistics_ && what.fingerprint != 0) statistics_->begun(what.fingerprint, what.kind, what.bytes);
        add(bytes_, what.bytes);
        return ring_.write(what, state, now);
    }
    /// Begins a brief operation (record/ring.hpp): fewer stores, and its end is not timed. No other operation may begin
    /// before complete() or prolong() is called for this one.
    [[gnu::always_inline]] Ticket begin_brief(const Happening& what, std::uint64_t now = ticks()) noexcept {
        add(bytes_, what.bytes);
        return ring_.write_brief(what, now);
    }
    [[gnu::always_inline]] void complete(Ticket ticket) noexcept {
        ring_.settle(ticket);
        add(completed_, 1);
    }
    /// The brief operation takes longer: turns its record into one like begin()'s.
    void prolong(Ticket ticket) noexcept { ring_.prolong(ticket); }

    void start(Ticket ticket) noexcept {
        Ring::Slot* slot = ring_.find(ticket);
        if (slot == nullptr) return;
        slot->started.store(ticks(), std::memory_order_relaxed);
        slot->state.store(State::started, std::memory_order_release);
    }
    /// `state`: completed or failed.
    void end(Ticket ticket, State state) noexcept {
        TUTTI_ASSERT(state == State::completed || state == State::failed);
        Ring::Slot* slot = ring_.find(ticket);
        if (slot == nullptr) return;
        const std::uint64_t now = ticks();
        slot->ended.store(now, std::memory_order_relaxed);
        slot->state.store(state, std::memory_order_release);
        add(state == State::failed ? failed_ : completed_, 1);
        const std::uint64_t duration = now - slot->enqueued.load(std::memory_order_relaxed);
        add(busy_ticks_, duration);
        const std::uint64_t fingerprint = slot->fingerprint.load(std::memory_order_relaxed);
        if (statistics_ && fingerprint != 0)
            statistics_->ended(fingerprint, slot->kind.load(std::memory_order_relaxed), state, duration);
    }
    /// Whether operations are counted one by one; then all must begin with begin(), none with begin_brief().
    bool counts_operations() const noexcept { return statistics_ != nullptr; }
    /// Records why the group has failed: a word, as a string literal. Only the first call counts.
    void note_failure(const char* cause) noexcept {
        TUTTI_ASSERT(cause != nullptr);
        const char* none = nullptr;
        failure_.compare_exchange_strong(none, cause, std::memory_order_relaxed);
    }
    /// A rank of the group has died, or has left. Any thread.
    void note_gone(int peer) noexcept {
        TUTTI_ASSERT(peer >= 0 && static_cast<std::size_t>(peer) < gone_.size());
        gone_[static_cast<std::size_t>(peer)].store(true, std::memory_order_relaxed);
    }
    /// This rank has waited for `peer` for `time`, according to a thread that checked from time to time.
    void note_wait(int peer, std::chrono::nanoseconds time) noexcept { waits_.note(peer, time, ticks()); }

    /// Sets the messages of the group that have arrived at this rank and that none of its receives has matched.
    void note_unmatched(std::vector<UnmatchedMessage> messages) noexcept;

    /// The last `count` operations, and every older one that is still open. Call sites have source lines if these are
    /// found within a short time limit; none has one if `count` is 0.
    Dump snapshot(const std::string& reason, std::size_t count = capacity) const;
    Counters counters() const;
    /// Call it when this group fails or ends: writes a dump if dumps are wanted (TUTTI_TRACE_DIR). Only the first call
    /// counts: later failures are symptoms of the first.
    enum class End { failed, over };
    void dump_at_end(const std::string& reason, End end) noexcept;

 private:
    // One writer: no locked instruction is needed.
    [[gnu::always_inline]] static void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) noexcept {
        counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    }
    bool read(Ticket ticket, const TickScale& scale, Entry& entry, SourceLines* lines) const;
    std::string name_of(const Statistics::Row& row) const;
    std::vector<int> seen_to_wait_for(const Dump& dump, const TickScale& scale) const;

    const std::string group_;
    const int rank_, size_;
    const Members members_;
    const Describe describe_;
    const int process_;
    const void* const made_at_;  // a call site
    std::atomic<std::uint64_t> world_{0}, home_{0};
    Ring ring_;
    std::atomic<std::uint64_t> completed_{0}, failed_{0}, bytes_{0}, busy_ticks_{0};
    Waits waits_;
    std::vector<std::uint64_t> sent_, received_;    // by rank: messages
    const std::unique_ptr<Statistics> statistics_;  // null: not wanted
    std::atomic<const char*> failure_{nullptr};
    std::vector<std::atomic<bool>> gone_;  // by rank
    mutable std::mutex unmatched_mutex_;
    std::vector<UnmatchedMessage> unmatched_;
    const bool keeps_splits_;
    Splits splits_;
    std::atomic<bool> dumped_at_end_{false};
};

}  // namespace tutti::record
