// Recorder: what a rank has done in one group lately: always on, in a ring of 4,096 records of one cache line each.
//
// To write a record takes a reading of the counter and a few plain stores. Its memory (256 KB) is zero pages of the
// kernel until it is written to: a group that does little takes little.
//
// Threads: begin() to note_wait() by one thread at a time (the group's lock); everything else by any
// thread at any time, without making the writer wait: a record that changes meanwhile is left out.
#pragma once

#include "record/call_site.hpp"
#include "record/dump.hpp"
#include "record/ticks.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace tutti::record {

/// Names a record: the number of its operation.
using Ticket = std::uint64_t;

/// Text of a fingerprint; whoever makes fingerprints knows it.
using Describe = std::string (*)(std::uint64_t fingerprint);

struct Happening {
    std::uint64_t sequence = 0;  ///< 0: a message
    std::uint64_t fingerprint = 0;
    std::uint64_t bytes = 0;  ///< of this rank's contribution
    int peer = -1;            ///< of a message, or the root
    Kind kind = Kind::collective;
};

/// Of one group and rank, since it was made.
struct Counters {
    std::string group;
    int rank = 0;
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

    /// Known only once the ranks have met.
    void set_world(std::uint64_t world) noexcept { world_.store(world, std::memory_order_relaxed); }

    Ticket begin(const Happening& what, State state) noexcept {
        const std::uint64_t now = ticks();
        return write(what, state, now, [&](Slot& slot) {
            slot.started.store(state == State::started ? now : 0, std::memory_order_relaxed);
            slot.ended.store(0, std::memory_order_relaxed);
        });
    }
    /// One that is over in a moment: fewer stores, and nobody looks at the clock when it ends. No other begins before
    /// it is settled (completed) or prolonged.
    [[gnu::always_inline]] Ticket begin_brief(const Happening& what, std::uint64_t now = ticks()) noexcept {
        return write(what, brief, now, [](Slot&) {});
    }
    [[gnu::always_inline]] void settle(Ticket ticket) noexcept {
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
        add(busy_ticks_, now - slot->enqueued.load(std::memory_order_relaxed));
    }
    /// This rank has waited for `peer`, as somebody who looked now and then saw it.
    void note_wait(int peer, std::chrono::nanoseconds time) noexcept;

    /// The last `count` operations, and every older one that is still open.
    Dump snapshot(const std::string& reason, std::size_t count = capacity) const;
    Counters counters() const;
    /// When this group fails or ends: leaves a dump where dumps are wanted (TUTTI_TRACE_DIR). Only the first call
    /// counts: what follows a failure are its symptoms.
    void dump_at_end(const std::string& reason) noexcept;

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

    const std::string group_;
    const int rank_, size_;
    const Members members_;
    const Describe describe_;
    const int process_;
    std::atomic<std::uint64_t> world_{0};
    const std::unique_ptr<Slot[], Unmap> ring_;
    std::atomic<Ticket> issued_{0}, settled_{0};  // settled_: the latest brief one
    std::atomic<std::uint64_t> completed_{0}, failed_{0}, bytes_{0}, busy_ticks_{0};
    std::vector<std::atomic<std::int64_t>> waited_ns_;  // by rank
    std::atomic<bool> dumped_at_end_{false};
};

}  // namespace tutti::record
