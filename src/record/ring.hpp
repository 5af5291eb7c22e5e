// Ring: the latest records of one group and rank, in a ring of 4,096 slots of one cache line each.
//
// Writing a record takes a few plain stores. The ring's memory (256 KB) consists of the kernel's zero pages until it is
// written, so a group that does little takes little memory. A slot's ticket is 0 while the rest of the slot changes; a
// reader omits the record if the ticket differs before or after reading.
//
// A brief record is for an operation that mostly ends within its call: only its beginning is timed, and it counts as
// completed once settle() is called. Only the latest record may be brief and not settled.
//
// Threads: last(), may_be_open() and read() by any thread at any time, without making the writer wait; everything else
// by one thread at a time (the group's lock).
#pragma once

#include "core/assert.hpp"
#include "record/call_site.hpp"
#include "record/dump.hpp"
#include "record/source_lines.hpp"
#include "record/ticks.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti::record {

/// Names a record: the number of its operation, from 1 on.
using Ticket = std::uint64_t;

struct Happening {
    std::uint64_t sequence = 0;  ///< of a message: Recorder::number_message()
    std::uint64_t fingerprint = 0;
    std::uint64_t bytes = 0;  ///< of this rank's contribution
    int peer = -1;            ///< a message's peer, or the root
    int tag = -1;             ///< a message's tag; -1: none
    Kind kind = Kind::collective;
};

class Ring {
 public:
    static constexpr std::size_t capacity = 4096;

    /// One record; times in ticks.
    struct alignas(64) Slot {
        std::atomic<Ticket> ticket;
        std::atomic<std::uint64_t> sequence, fingerprint, enqueued;
        std::atomic<std::uint64_t> started;  // for messages, which start at once: the tag
        std::atomic<std::uint64_t> ended;
        std::atomic<const void*> site;
        std::atomic<std::int32_t> peer;
        std::atomic<Kind> kind;
        std::atomic<State> state;
    };
    static_assert(sizeof(Slot) == 64, "one cache line");

    Ring() : slots_(make_slots()) {}

    [[gnu::always_inline]] Ticket write(const Happening& what, State state, std::uint64_t now) noexcept {
        return write(what, state, now, [&](Slot& slot) {
            if (!is_message(what.kind))
                slot.started.store(state == State::started ? now : 0, std::memory_order_relaxed);
            slot.ended.store(0, std::memory_order_relaxed);
        });
    }
    /// No other record may be written before this one is settled or prolonged.
    [[gnu::always_inline]] Ticket write_brief(const Happening& what, std::uint64_t now) noexcept {
        return write(what, brief, now, [](Slot&) {});
    }
    [[gnu::always_inline]] void settle(Ticket ticket) noexcept {
        TUTTI_ASSERT(ticket == issued_.load(std::memory_order_relaxed));
        settled_.store(ticket, std::memory_order_release);
    }
    /// Turns the latest record, which is brief, into an ordinary one that has started.
    void prolong(Ticket ticket) noexcept;
    /// Null: a newer record has overwritten it.
    Slot* find(Ticket ticket) noexcept {
        Slot& slot = slots_[ticket % capacity];
        return ticket != 0 && slot.ticket.load(std::memory_order_relaxed) == ticket ? &slot : nullptr;
    }

    /// The ticket of the latest record; 0: there is none.
    Ticket last() const noexcept { return issued_.load(std::memory_order_acquire); }
    /// False if the operation has ended, or is brief; a guess if the record changes meanwhile.
    bool may_be_open(Ticket ticket) const noexcept {
        const State state = slots_[ticket % capacity].state.load(std::memory_order_relaxed);
        return state == State::enqueued || state == State::started;
    }
    /// Reads all of the record but Entry::what. False if it is not there (any more), or is being written. `lines`:
    /// resolves call sites to source lines; null: call sites are addresses.
    bool read(Ticket ticket, const TickScale& scale, Entry& entry, SourceLines* lines = nullptr) const;

 private:
    static constexpr State brief{5};  // completed once it is settled, started until then
    struct Unmap {
        void operator()(Slot* slots) const noexcept;
    };
    static std::unique_ptr<Slot[], Unmap> make_slots();

    template <class Rest>
    [[gnu::always_inline]] Ticket write(const Happening& what, State state, std::uint64_t begun, Rest rest) noexcept {
        const Ticket ticket = issued_.load(std::memory_order_relaxed) + 1;
        TUTTI_ASSERT(is_settled(ticket - 1));
        Slot& slot = slots_[ticket % capacity];
        slot.ticket.store(0, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_release);  // readers see the 0 before anything new
        slot.sequence.store(what.sequence, std::memory_order_relaxed);
        slot.fingerprint.store(what.fingerprint, std::memory_order_relaxed);
        slot.enqueued.store(begun, std::memory_order_relaxed);
        slot.site.store(current_call_site, std::memory_order_relaxed);
        slot.peer.store(what.peer, std::memory_order_relaxed);
        slot.kind.store(what.kind, std::memory_order_relaxed);
        slot.state.store(state, std::memory_order_relaxed);
        if (is_message(what.kind))
            slot.started.store(static_cast<std::uint64_t>(std::int64_t{what.tag}), std::memory_order_relaxed);
        rest(slot);
        slot.ticket.store(ticket, std::memory_order_release);
        __builtin_prefetch(&slot + 1, 1);  // written soon; the memory has one slot more
        issued_.store(ticket, std::memory_order_release);
        return ticket;
    }

    /// Whether another record may follow this one.
    bool is_settled(Ticket latest) const noexcept {
        return latest == 0 || slots_[latest % capacity].state.load(std::memory_order_relaxed) != brief ||
               settled_.load(std::memory_order_relaxed) >= latest;
    }

    const std::unique_ptr<Slot[], Unmap> slots_;
    std::atomic<Ticket> issued_{0}, settled_{0};  // settled_: the latest brief one
};

}  // namespace tutti::record
