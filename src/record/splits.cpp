#include "record/splits.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <cstddef>

namespace tutti::record {
namespace {

constexpr std::size_t counts_max = 1 << 18;  // of one direction

}  // namespace

void Splits::note(Ticket ticket, std::span<const std::uint64_t> sent, std::span<const std::uint64_t> received) {
    const std::lock_guard lock(mutex_);
    TUTTI_ASSERT(latest_.empty() || latest_.back().ticket < ticket);
    latest_.push_back({ticket, {sent.begin(), sent.end()}, {received.begin(), received.end()}});
    const std::size_t most = std::max<std::size_t>(1, counts_max / std::max<std::size_t>(1, sent.size()));
    while (latest_.front().ticket + Ring::capacity <= ticket || latest_.size() > most) latest_.pop_front();
    TUTTI_ASSERT(!latest_.empty() && latest_.back().ticket == ticket);
}

void Splits::add_to(std::vector<Entry>& entries) const {
    const std::lock_guard lock(mutex_);
    for (const Split& split : latest_) {
        const auto entry = std::ranges::lower_bound(entries, split.ticket, {}, &Entry::number);
        if (entry == entries.end() || entry->number != split.ticket) continue;
        entry->sent = split.sent;
        entry->received = split.received;
    }
}

}  // namespace tutti::record
