#include "record/recorder.hpp"

#include "core/log.hpp"
#include "core/this_host.hpp"
#include "record/keeper.hpp"
#include "record/replays.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

namespace tutti::record {
namespace {

constexpr std::size_t splits_max = 1 << 18;  // counts of one direction that a group keeps: 2 MB

// "a message of int32 × 10": the direction stands elsewhere.
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
      waited_ns_(static_cast<std::size_t>(std::max(size, 1))),
      noted_ns_(waited_ns_.size()),
      sent_(waited_ns_.size()),
      received_(waited_ns_.size()),
      statistics_(status_port() ? std::make_unique<Statistics>() : nullptr),
      gone_(waited_ns_.size()),
      keeps_splits_(wants_splits()) {
    begin_ticks();
    record::add(*this);
}

Recorder::~Recorder() {
    record::remove(*this);
    forget_replays(*this);
}

void Recorder::note_wait(int peer, std::chrono::nanoseconds time) noexcept {
    auto& waited = waited_ns_[static_cast<std::size_t>(peer)];
    waited.store(waited.load(std::memory_order_relaxed) + time.count(), std::memory_order_relaxed);
    noted_ns_[static_cast<std::size_t>(peer)].store(TickScale().now_ns(), std::memory_order_relaxed);
}

void Recorder::note_source(Ticket ticket, int peer) noexcept {
    Slot* slot = find(ticket);
    if (slot == nullptr || slot->peer.load(std::memory_order_relaxed) >= 0) return;
    slot->peer.store(peer, std::memory_order_relaxed);
    slot->sequence.store(number_message(Kind::receive, peer), std::memory_order_relaxed);
}

void Recorder::note_splits(Ticket ticket, std::span<const std::uint64_t> sent,
                           std::span<const std::uint64_t> received) {
    const std::lock_guard lock(splits_mutex_);
    splits_.push_back({ticket, {sent.begin(), sent.end()}, {received.begin(), received.end()}});
    const std::size_t most = std::max<std::size_t>(1, splits_max / std::max<std::size_t>(1, sent.size()));
    while (splits_.front().ticket + capacity <= ticket || splits_.size() > most) splits_.pop_front();
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
    if (is_message(entry.kind)) entry.message = std::exchange(entry.sequence, 0);
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

// The ranks that a thread has seen the oldest open operation wait for, within the last second.
std::vector<int> Recorder::seen_to_wait_for(const Dump& dump) const {
    std::vector<int> peers;
    const auto open = std::ranges::find_if(dump.entries, &Entry::open);
    if (open == dump.entries.end()) return peers;
    const std::int64_t since = std::max(open->enqueued_ns, dump.taken_ns - 1'000'000'000);
    for (std::size_t peer = 0; peer < noted_ns_.size(); ++peer) {
        if (noted_ns_[peer].load(std::memory_order_relaxed) > since) peers.push_back(static_cast<int>(peer));
    }
    return peers;
}

Dump Recorder::snapshot(const std::string& reason, std::size_t count) const {
    static const std::string host = this_host::name(), machine = this_host::boot_id();
    const TickScale scale;
    Dump dump{.group = group_,
              .world = world_.load(std::memory_order_relaxed),
              .home = home_.load(std::memory_order_relaxed),
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
    dump.replays = replays_under_way(*this);
    if (count >= capacity) dump.graphs = replayed_graphs(*this, scale);
    dump.waits_for = seen_to_wait_for(dump);
    const std::lock_guard lock(splits_mutex_);
    for (const Splits& splits : splits_) {
        const auto entry = std::ranges::lower_bound(dump.entries, splits.ticket, {}, &Entry::number);
        if (entry == dump.entries.end() || entry->number != splits.ticket) continue;
        entry->sent = splits.sent;
        entry->received = splits.received;
    }
    return dump;
}

// "all_reduce" of "all_reduce of float32 × 10, sum".
std::string Recorder::name_of(const Statistics::Row& row) const {
    if (is_message(row.kind)) return std::string(to_string(row.kind));
    const std::string text = describe_(row.fingerprint);
    return text.substr(0, std::min(text.find(" of "), text.find(',')));
}

Counters Recorder::counters() const {
    Counters c{.group = group_,
               .rank = rank_,
               .size = size_,
               .gone = static_cast<int>(std::ranges::count_if(gone_, [](const auto& gone) { return gone.load(); })),
               .failure = failure_.load(std::memory_order_relaxed),
               .issued = issued_.load(std::memory_order_relaxed),
               .completed = completed_.load(std::memory_order_relaxed),
               .failed = failed_.load(std::memory_order_relaxed),
               .bytes = bytes_.load(std::memory_order_relaxed),
               .seconds = TickScale().seconds(busy_ticks_.load(std::memory_order_relaxed))};
    if (statistics_) {
        for (const Statistics::Row& row : statistics_->rows()) c.by_operation.push_back({name_of(row), row});
        const Dump open = snapshot("", 0);
        for (const Entry& entry : open.entries) {
            if (!entry.open()) continue;
            ++c.open;
            c.oldest_s = std::max(c.oldest_s, 1e-9 * static_cast<double>(open.taken_ns - entry.enqueued_ns));
        }
    }
    for (const auto& ns : waited_ns_)
        c.waited_s.push_back(1e-9 * static_cast<double>(ns.load(std::memory_order_relaxed)));
    return c;
}

void Recorder::dump_at_end(const std::string& reason, End end) noexcept {
    try {
        const auto directory = trace_directory();
        if (!directory || process_ != ::getpid() || dumped_at_end_.exchange(true)) return;
        const Dump dump = snapshot(reason);
        std::filesystem::create_directories(*directory);
        write_file(*directory / file_name(dump), encode(dump));
        if (end == End::failed) write_flight_after_failure();
    } catch (const std::exception& error) {
        TUTTI_WARN("no dump of group \"{}\": {}", group_, error.what());
    }
}

}  // namespace tutti::record
