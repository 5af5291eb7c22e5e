// Recorder: a rank's latest operations in one group: always on, in a ring of 4,096 records of one cache line each.
//
// Writing a record takes a reading of the counter and a few plain stores. Its memory (256 KB) is zero pages of the
// kernel until it is written to: a group that does little takes little.
//
// Threads: begin() to note_wait() by one thread at a time (the group's lock); everything else by any
// thread at any time, without making the writer wait: a record that changes meanwhile is left out.
#pragma once

#include "record/call_site.hpp"
#include "record/dump.hpp"
#include "record/statistics.hpp"
#include "record/ticks.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tutti::record {

/// Names a record: the number of its operation.
using Ticket = std::uint64_t;

/// Text of a fingerprint; the maker of fingerprints supplies it.
using Describe = std::string (*)(std::uint64_t fingerprint);

struct Happening {
    std::uint64_t sequence = 0;  ///< of a message: number_message()
    std::uint64_t fingerprint = 0;
    std::uint64_t bytes = 0;  ///< of this rank's contribution
    int peer = -1;            ///< of a message, or the root
    Kind kind = Kind::collective;
};

/// The counters of one group and rank, since its making.
struct Counters {
    struct ByOperation {
        std::string operation;
        Statistics::Row numbers;
    };

    std::string group;
    int rank = 0, size = 1;
    int gone = 0;                           ///< ranks that are known to be dead, or have left
    const char* failure = nullptr;          ///< why the group has failed; null: it has not
    std::uint64_t open = 0;                 ///< operations
    double oldest_s = 0;                    ///< for how long the oldest of them has been open
    std::vector<ByOperation> by_operation;  ///< empty where they are not counted one by one
    std::uint64_t issued = 0, completed = 0, failed = 0;
    std::uint64_t bytes = 0;
    double seconds = 0;            ///< from call to completion, of all that were not over in a moment
    std::vector<double> waited_s;  ///< by rank: how long it was waited for, in waits of more than some 10 ms
};

class Recorder {
 public:
    static constexpr std::size_t capacity = 4096;

    /// `members`: empty for a group of all `size` ranks.
    Recorder(std::string group, int rank, int size, Describe describe, std::vector<int> members = {});
    ~Recorder();
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    /// The rank of this process in the world.
    int world_rank() const noexcept { return members_[rank_]; }
    /// Known only once the ranks have met. `home`: equal for all groups of one world.
    void set_world(std::uint64_t world, std::uint64_t home) noexcept {
        world_.store(world, std::memory_order_relaxed);
        home_.store(home, std::memory_order_relaxed);
    }

    /// Counts the messages that go one way between this rank and another; 0 for any peer.
    std::uint64_t number_message(Kind kind, int peer) noexcept {
        if (peer < 0) return 0;
        return ++(kind == Kind::send ? sent_ : received_)[static_cast<std::size_t>(peer)];
    }
    /// The sender of the message, for a receive from any rank.
    void note_source(Ticket ticket, int peer) noexcept;
    /// Whether anybody wants to know how much each rank sends in an all_to_all.
    bool keeps_splits() const noexcept { return keeps_splits_; }
    /// In elements, by rank.
    void note_splits(Ticket ticket, std::span<const std::uint64_t> sent, std::span<const std::uint64_t> received);

    Ticket begin(const Happening& what, State state) noexcept {
        const std::uint64_t now = ticks();
        if (statistics_) statistics_->begun(what.fingerprint, what.kind, what.bytes);
        return write(what, state, now, [&](Slot& slot) {
            slot.started.store(state == State::started ? now : 0, std::memory_order_relaxed);
            slot.ended.store(0, std::memory_order_relaxed);
        });
    }
    /// Begins an operation that is over in a moment: fewer stores, and no reading of the clock when it ends. No other
    /// begins before it is settled (completed) or prolonged.
    [[gnu::always_inline]] Ticket begin_brief(const Happening& what, std::uint64_t now = ticks()) noexcept {
        return write(what, brief, now, [](Slot&) {});
    }
    [[gnu::always_inline]] void complete(Ticket ticket) noexcept {
        settled_.store(ticket, std::memory_order_release);
        add(completed_, 1);
    }
    /// It takes longer: from now on it is like one that began by begin().
    void prolong(Ticket ticket) noexcept;

    void start(Ticket ticket) noexcept {
        Slot* slot = find(ticket);
        if (slot == nullptr) return;
        slot->started.store(ticks(), std::memory_order_relaxed);
        slot->state.store(State::started, std::memory_order_release);
    }
    /// `state`: completed or failed.
    void end(Ticket ticket, State state) noexcept {
        Slot* slot = find(ticket);
        if (slot == nullptr) return;
        const std::uint64_t now = ticks();
        slot->ended.store(now, std::memory_order_relaxed);
        slot->state.store(state, std::memory_order_release);
        add(state == State::failed ? failed_ : completed_, 1);
        const std::uint64_t duration = now - slot->enqueued.load(std::memory_order_relaxed);
        add(busy_ticks_, duration);
        if (statistics_)
            statistics_->ended(slot->fingerprint.load(std::memory_order_relaxed),
                               slot->kind.load(std::memory_order_relaxed), state, duration);
    }
    /// Whether operations are counted one by one; then all begin by begin() and not in brief.
    bool counts_operations() const noexcept { return statistics_ != nullptr; }
    /// Why the group has failed: a word, which is a literal. The first one counts.
    void note_failure(const char* cause) noexcept {
        const char* none = nullptr;
        failure_.compare_exchange_strong(none, cause, std::memory_order_relaxed);
    }
    /// A rank of the group has died, or has left. Any thread.
    void note_gone(int peer) noexcept { gone_[static_cast<std::size_t>(peer)].store(true, std::memory_order_relaxed); }
    /// This rank has waited for `peer`, as seen by a thread that looked now and then.
    void note_wait(int peer, std::chrono::nanoseconds time) noexcept;

    /// The last `count` operations, and every older one that is still open.
    Dump snapshot(const std::string& reason, std::size_t count = capacity) const;
    Counters counters() const;
    /// When this group fails or ends: leaves a dump where dumps are wanted (TUTTI_TRACE_DIR). Only the first call
    /// counts: later failures are symptoms of the first.
    enum class End { failed, over };
    void dump_at_end(const std::string& reason, End end) noexcept;

 private:
    static constexpr State brief{5};  // as a record has it: completed once it is settled, started until then

    struct alignas(64) Slot {
        std::atomic<Ticket> ticket;
        std::atomic<std::uint64_t> sequence, fingerprint, enqueued, started, ended;
        std::atomic<const void*> site;
        std::atomic<std::int32_t> peer;
        std::atomic<Kind> kind;
        std::atomic<State> state;
    };
    static_assert(sizeof(Slot) == 64, "one cache line");
    struct Unmap {
        void operator()(Slot* ring) const noexcept;
    };
    struct Splits {
        Ticket ticket = 0;
        std::vector<std::uint64_t> sent, received;
    };

    template <class Rest>
    [[gnu::always_inline]] Ticket write(const Happening& what, State state, std::uint64_t begun, Rest rest) noexcept {
        const Ticket ticket = issued_.load(std::memory_order_relaxed) + 1;
        Slot& slot = ring_[ticket % capacity];
        slot.ticket.store(0, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_release);  // readers see the 0 before anything new
        slot.sequence.store(what.sequence, std::memory_order_relaxed);
        slot.fingerprint.store(what.fingerprint, std::memory_order_relaxed);
        slot.enqueued.store(begun, std::memory_order_relaxed);
        slot.site.store(current_call_site, std::memory_order_relaxed);
        slot.peer.store(what.peer, std::memory_order_relaxed);
        slot.kind.store(what.kind, std::memory_order_relaxed);
        slot.state.store(state, std::memory_order_relaxed);
        rest(slot);
        slot.ticket.store(ticket, std::memory_order_release);
        __builtin_prefetch(&slot + 1, 1);  // written soon; there is one more after the last
        add(bytes_, what.bytes);
        issued_.store(ticket, std::memory_order_release);
        return ticket;
    }
    // One writer: no locked instruction is needed.
    [[gnu::always_inline]] static void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) noexcept {
        counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    }
    Slot* find(Ticket ticket) const noexcept {
        Slot& slot = ring_[ticket % capacity];
        return ticket != 0 && slot.ticket.load(std::memory_order_relaxed) == ticket ? &slot : nullptr;
    }
    static std::unique_ptr<Slot[], Unmap> make_ring();
    bool read(Ticket ticket, const TickScale& scale, Entry& entry) const;
    std::string name_of(const Statistics::Row& row) const;
    std::vector<int> seen_to_wait_for(const Dump& dump) const;

    const std::string group_;
    const int rank_, size_;
    const Members members_;
    const Describe describe_;
    const int process_;
    std::atomic<std::uint64_t> world_{0}, home_{0};
    const std::unique_ptr<Slot[], Unmap> ring_;
    std::atomic<Ticket> issued_{0}, settled_{0};  // settled_: the latest brief one
    std::atomic<std::uint64_t> completed_{0}, failed_{0}, bytes_{0}, busy_ticks_{0};
    std::vector<std::atomic<std::int64_t>> waited_ns_;  // by rank
    std::vector<std::atomic<std::int64_t>> noted_ns_;   // by rank: when it was last seen to be waited for
    std::vector<std::uint64_t> sent_, received_;        // by rank: messages
    const std::unique_ptr<Statistics> statistics_;      // null: nobody asks
    std::atomic<const char*> failure_{nullptr};
    std::vector<std::atomic<bool>> gone_;  // by rank
    const bool keeps_splits_;
    mutable std::mutex splits_mutex_;
    std::deque<Splits> splits_;  // in order, of the last `capacity` operations
    std::atomic<bool> dumped_at_end_{false};
};

}  // namespace tutti::record
