#include "record/recorder.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/this_host.hpp"
#include "record/dump_writer.hpp"
#include "record/replays.hpp"
#include "record/wanted.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace tutti::record {
namespace {

constexpr std::chrono::milliseconds patience_for_all_lines{300}, patience_for_lines{100};

// "a message of int32 × 10": the direction stands elsewhere.
std::string without_message(std::string text) {
    constexpr std::string_view prefix = "a message of ";
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

}  // namespace

Recorder::Recorder(std::string group, int rank, int size, Describe describe, std::vector<int> members)
    : group_(std::move(group)),
      rank_(rank),
      size_(size),
      members_(std::move(members)),
      describe_(describe),
      process_(::getpid()),
      made_at_(current_call_site),
      waits_(static_cast<std::size_t>(std::max(size, 1))),
      sent_(static_cast<std::size_t>(std::max(size, 1))),
      received_(sent_.size()),
      statistics_(status_port() ? std::make_unique<Statistics>() : nullptr),
      gone_(sent_.size()),
      keeps_splits_(wants_splits()) {
    TUTTI_ASSERT(describe_ != nullptr && size >= 1 && rank >= 0 && rank < size);
    TUTTI_ASSERT(members_.ranks().empty() || members_.ranks().size() == static_cast<std::size_t>(size));
    begin_ticks();
    record::add(*this);
}

Recorder::~Recorder() {
    record::remove(*this);
    forget_replays(*this);
}

void Recorder::note_source(Ticket ticket, int peer) noexcept {
    TUTTI_ASSERT(peer >= 0 && peer < size_);
    Ring::Slot* slot = ring_.find(ticket);
    if (slot == nullptr || slot->peer.load(std::memory_order_relaxed) >= 0) return;
    slot->peer.store(peer, std::memory_order_relaxed);
    slot->sequence.store(number_message(Kind::receive, peer), std::memory_order_relaxed);
}

// False when the record is not there (any more), or is being written.
bool Recorder::read(Ticket ticket, const TickScale& scale, Entry& entry, SourceLines* lines) const {
    if (!ring_.read(ticket, scale, entry, lines)) return false;
    entry.what = describe_(entry.fingerprint);
    if (is_message(entry.kind)) entry.what = without_message(std::move(entry.what));
    return true;
}

// Readers hold the lock for the time of a copy. The writer does not wait for them: its next look comes soon.
void Recorder::note_unmatched(std::vector<UnmatchedMessage> messages) noexcept {
    const std::unique_lock lock(unmatched_mutex_, std::try_to_lock);
    if (lock) unmatched_.swap(messages);
}

// The ranks that a thread has seen the oldest open operation wait for, within the last second.
std::vector<int> Recorder::seen_to_wait_for(const Dump& dump, const TickScale& scale) const {
    const auto open = std::ranges::find_if(dump.entries, &Entry::open);
    if (open == dump.entries.end()) return {};
    return waits_.seen_since(std::max(open->enqueued_ns, dump.taken_ns - 1'000'000'000), scale);
}

Dump Recorder::snapshot(const std::string& reason, std::size_t count) const {
    static const auto& host = *new std::string(this_host::name());  // groups may outlive static objects
    static const auto& machine = *new std::string(this_host::boot_id());
    const TickScale scale;
    SourceLines lines(count >= capacity ? patience_for_all_lines : patience_for_lines);
    Dump dump{.group = group_,
              .world = world_.load(std::memory_order_relaxed),
              .home = home_.load(std::memory_order_relaxed),
              .rank = rank_,
              .size = size_,
              .members = members_,
              .made_at = describe_call_site(made_at_, count > 0 ? &lines : nullptr),
              .host = host,
              .machine = machine,
              .process = process_,
              .reason = reason,
              .taken_ns = scale.now_ns()};
    const Ticket last = ring_.last();
    const Ticket first = last > capacity ? last - capacity + 1 : 1;
    const Ticket recent = last > count ? last - count + 1 : 1;
    TUTTI_ASSERT(first >= 1 && last < first + capacity && recent >= 1);
    for (Ticket ticket = last; ticket >= first; --ticket) {  // the latest ones get lines first
        if (ticket < recent && !ring_.may_be_open(ticket)) continue;
        Entry entry;
        if (read(ticket, scale, entry, count > 0 ? &lines : nullptr)) dump.entries.push_back(std::move(entry));
    }
    std::ranges::reverse(dump.entries);
    dump.replays = replays_under_way(*this);
    if (count >= capacity) dump.graphs = replayed_graphs(*this, scale);
    dump.waits_for = seen_to_wait_for(dump, scale);
    {
        const std::lock_guard lock(unmatched_mutex_);
        dump.unmatched = unmatched_;
    }
    for (UnmatchedMessage& message : dump.unmatched) message.what = without_message(describe_(message.fingerprint));
    splits_.add_to(dump.entries);
    TUTTI_ASSERT(dump.entries.size() <= capacity && dump.graphs.size() <= dump_graphs_max);
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
               .issued = ring_.last(),
               .completed = completed_.load(std::memory_order_relaxed),
               .failed = failed_.load(std::memory_order_relaxed),
               .bytes = bytes_.load(std::memory_order_relaxed),
               .seconds = TickScale().seconds(busy_ticks_.load(std::memory_order_relaxed)),
               .waited_s = waits_.seconds()};
    if (statistics_) {
        for (const Statistics::Row& row : statistics_->rows()) c.by_operation.push_back({name_of(row), row});
        const Dump open = snapshot("", 0);
        for (const Entry& entry : open.entries) {
            if (!entry.open()) continue;
            ++c.open;
            c.oldest_s = std::max(c.oldest_s, 1e-9 * static_cast<double>(open.taken_ns - entry.enqueued_ns));
        }
    }
    TUTTI_ASSERT(c.gone >= 0 && c.gone <= c.size && c.waited_s.size() == gone_.size());
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
