#include "record/waits.hpp"

#include "core/assert.hpp"

namespace tutti::record {

void Waits::note(int peer, std::chrono::nanoseconds time, std::uint64_t now) noexcept {
    TUTTI_ASSERT(peer >= 0 && static_cast<std::size_t>(peer) < by_rank_.size() && time.count() >= 0);
    Wait& wait = by_rank_[static_cast<std::size_t>(peer)];
    wait.total_ns.store(wait.total_ns.load(std::memory_order_relaxed) + time.count(), std::memory_order_relaxed);
    wait.seen.store(now, std::memory_order_relaxed);
}

std::vector<double> Waits::seconds() const {
    std::vector<double> all;
    all.reserve(by_rank_.size());
    for (const Wait& wait : by_rank_)
        all.push_back(1e-9 * static_cast<double>(wait.total_ns.load(std::memory_order_relaxed)));
    TUTTI_ASSERT(all.size() == by_rank_.size());
    return all;
}

std::vector<int> Waits::seen_since(std::int64_t since_ns, const TickScale& scale) const {
    std::vector<int> peers;
    for (std::size_t peer = 0; peer < by_rank_.size(); ++peer) {
        const std::int64_t seen_ns = scale.unix_ns(by_rank_[peer].seen.load(std::memory_order_relaxed));
        if (seen_ns > since_ns) peers.push_back(static_cast<int>(peer));
    }
    return peers;
}

}  // namespace tutti::record
