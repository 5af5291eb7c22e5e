#include "record/recorder.hpp"

#include "core/log.hpp"
#include "core/this_host.hpp"
#include "record/keeper.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

namespace tutti::record {
namespace {

// "a message of int32 × 10": the direction is said elsewhere.
std::string without_message(std::string text) {
    constexpr std::string_view prefix = "a message of ";
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

}  // namespace

void Recorder::Unmap::operator()(Slot* ring) const noexcept {
    ::munmap(ring, capacity * sizeof(Slot));
}

std::unique_ptr<Recorder::Slot[], Recorder::Unmap> Recorder::make_ring() {
    void* memory = ::mmap(nullptr, capacity * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return std::unique_ptr<Slot[], Unmap>(static_cast<Slot*>(memory));  // zero bytes are empty records
}

Recorder::Recorder(std::string group, int rank, int size, Describe describe, std::vector<int> members)
    : group_(std::move(group)),
      rank_(rank),
      size_(size),
      members_(std::move(members)),
      describe_(describe),
      process_(::getpid()),
      ring_(make_ring()),
      waited_ns_(static_cast<std::size_t>(std::max(size, 1))) {
    begin_ticks();
    record::add(*this);
}

Recorder::~Recorder() {
    record::remove(*this);
}

void Recorder::note_wait(int peer, std::chrono::nanoseconds time) noexcept {
    auto& waited = waited_ns_[static_cast<std::size_t>(peer)];
    waited.store(waited.load(std::memory_order_relaxed) + time.count(), std::memory_order_relaxed);
}

void Recorder::prolong(Ticket ticket) noexcept {
    Slot& slot = ring_[ticket % capacity];
    slot.started.store(slot.enqueued.load(std::memory_order_relaxed), std::memory_order_relaxed);
    slot.ended.store(0, std::memory_order_relaxed);
    slot.state.store(State::started, std::memory_order_release);
}

// False when the record is not there (any more), or is being written.
bool Recorder::read(Ticket ticket, const TickScale& scale, Entry& entry) const {
    const Slot& slot = ring_[ticket % capacity];
    if (slot.ticket.load(std::memory_order_acquire) != ticket) return false;
    entry.number = ticket;
    entry.state = slot.state.load(std::memory_order_acquire);
    entry.sequence = slot.sequence.load(std::memory_order_relaxed);
    entry.fingerprint = slot.fingerprint.load(std::memory_order_relaxed);
    entry.kind = slot.kind.load(std::memory_order_relaxed);
    entry.peer = slot.peer.load(std::memory_order_relaxed);
    entry.enqueued_ns = scale.unix_ns(slot.enqueued.load(std::memory_order_relaxed));
    if (entry.state == brief) {
        entry.state = ticket <= settled_.load(std::memory_order_acquire) ? State::completed : State::started;
        entry.started_ns = entry.enqueued_ns;
        entry.ended_ns = 0;
    } else {
        entry.started_ns = scale.unix_ns(slot.started.load(std::memory_order_relaxed));
        entry.ended_ns = entry.open() ? 0 : scale.unix_ns(slot.ended.load(std::memory_order_relaxed));
    }
    const void* site = slot.site.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.ticket.load(std::memory_order_relaxed) != ticket) return false;
    entry.what = describe_(entry.fingerprint);
    if (is_message(entry.kind)) entry.what = without_message(std::move(entry.what));
    entry.site = describe_call_site(site);
    return true;
}

Dump Recorder::snapshot(const std::string& reason, std::size_t count) const {
    static const std::string host = this_host::name(), machine = this_host::boot_id();
    const TickScale scale;
    Dump dump{.group = group_,
              .world = world_.load(std::memory_order_relaxed),
              .rank = rank_,
              .size = size_,
              .members = members_,
              .host = host,
              .machine = machine,
              .process = process_,
              .reason = reason,
              .taken_ns = scale.now_ns()};
    const Ticket last = issued_.load(std::memory_order_acquire);
    const Ticket first = last > capacity ? last - capacity + 1 : 1;
    const Ticket recent = last > count ? last - count + 1 : 1;
    for (Ticket ticket = first; ticket <= last; ++ticket) {
        if (ticket < recent) {  // of brief ones only the latest may be open
            const Slot& slot = ring_[ticket % capacity];
            const State state = slot.state.load(std::memory_order_relaxed);
            if (state != State::enqueued && state != State::started) continue;
        }
        Entry entry;
        if (read(ticket, scale, entry)) dump.entries.push_back(std::move(entry));
    }
    return dump;
}

Counters Recorder::counters() const {
    Counters c{.group = group_,
               .rank = rank_,
               .issued = issued_.load(std::memory_order_relaxed),
               .completed = completed_.load(std::memory_order_relaxed),
               .failed = failed_.load(std::memory_order_relaxed),
               .bytes = bytes_.load(std::memory_order_relaxed),
               .seconds = TickScale().seconds(busy_ticks_.load(std::memory_order_relaxed))};
    for (const auto& ns : waited_ns_)
        c.waited_s.push_back(1e-9 * static_cast<double>(ns.load(std::memory_order_relaxed)));
    return c;
}

void Recorder::dump_at_end(const std::string& reason) noexcept {
    try {
        const auto directory = trace_directory();
        if (!directory || process_ != ::getpid() || dumped_at_end_.exchange(true)) return;
        const Dump dump = snapshot(reason);
        std::filesystem::create_directories(*directory);
        write_file(*directory / file_name(dump), encode(dump));
    } catch (const std::exception& error) {
        TUTTI_WARN("no dump of group \"{}\": {}", group_, error.what());
    }
}

}  // namespace tutti::record
