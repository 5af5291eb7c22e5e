#include "record/waits.hpp"

namespace tutti::record {

void Waits::note(int peer, std::chrono::nanoseconds time, std::int64_t now_ns) noexcept {
    Wait& wait = by_rank_[static_cast<std::size_t>(peer)];
    wait.total_ns.store(wait.total_ns.load(std::memory_order_relaxed) + time.count(), std::memory_order_relaxed);
    wait.seen_ns.store(now_ns, std::memory_order_relaxed);
}

std::vector<double> Waits::seconds() const {
    std::vector<double> all;
    all.reserve(by_rank_.size());
    for (const Wait& wait : by_rank_)
        all.push_back(1e-9 * static_cast<double>(wait.total_ns.load(std::memory_order_relaxed)));
    return all;
}

std::vector<int> Waits::seen_since(std::int64_t since_ns) const {
    std::vector<int> peers;
    for (std::size_t peer = 0; peer < by_rank_.size(); ++peer) {
        if (by_rank_[peer].seen_ns.load(std::memory_order_relaxed) > since_ns) peers.push_back(static_cast<int>(peer));
    }
    return peers;
}

}  // namespace tutti::record
