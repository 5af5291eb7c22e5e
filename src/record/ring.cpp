#include "record/ring.hpp"

#include "core/assert.hpp"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace tutti::record {

void Ring::Unmap::operator()(Slot* slots) const noexcept {
    ::munmap(slots, capacity * sizeof(Slot));
}

std::unique_ptr<Ring::Slot[], Ring::Unmap> Ring::make_slots() {
    void* memory = ::mmap(nullptr, capacity * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return std::unique_ptr<Slot[], Unmap>(static_cast<Slot*>(memory));  // zero bytes are empty records
}

void Ring::prolong(Ticket ticket) noexcept {
    Slot& slot = slots_[ticket % capacity];
    TUTTI_ASSERT(ticket == issued_.load(std::memory_order_relaxed) &&
                 slot.state.load(std::memory_order_relaxed) == brief);
    slot.started.store(slot.enqueued.load(std::memory_order_relaxed), std::memory_order_relaxed);
    slot.ended.store(0, std::memory_order_relaxed);
    slot.state.store(State::started, std::memory_order_release);
}

bool Ring::read(Ticket ticket, const TickScale& scale, Entry& entry, SourceLines* lines) const {
    TUTTI_ASSERT(ticket != 0);
    const Slot& slot = slots_[ticket % capacity];
    if (slot.ticket.load(std::memory_order_acquire) != ticket) return false;
    entry.number = ticket;
    entry.state = slot.state.load(std::memory_order_acquire);
    entry.sequence = slot.sequence.load(std::memory_order_relaxed);
    entry.fingerprint = slot.fingerprint.load(std::memory_order_relaxed);
    entry.kind = slot.kind.load(std::memory_order_relaxed);
    if (is_message(entry.kind)) entry.message = std::exchange(entry.sequence, 0);
    entry.peer = slot.peer.load(std::memory_order_relaxed);
    entry.enqueued_ns = scale.unix_ns(slot.enqueued.load(std::memory_order_relaxed));
    if (entry.state == brief) {
        entry.state = ticket <= settled_.load(std::memory_order_acquire) ? State::completed : State::started;
        entry.started_ns = entry.enqueued_ns;
        entry.ended_ns = 0;
    } else {
        entry.started_ns =
            is_message(entry.kind) ? entry.enqueued_ns : scale.unix_ns(slot.started.load(std::memory_order_relaxed));
        entry.ended_ns = entry.open() ? 0 : scale.unix_ns(slot.ended.load(std::memory_order_relaxed));
    }
    if (is_message(entry.kind)) entry.tag = static_cast<int>(slot.started.load(std::memory_order_relaxed));
    const void* site = slot.site.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.ticket.load(std::memory_order_relaxed) != ticket) return false;
    entry.site = describe_call_site(site, lines);
    return true;
}

}  // namespace tutti::record
