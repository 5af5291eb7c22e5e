#include "transport/shm/neighbours.hpp"

#include "core/assert.hpp"

#include <algorithm>

namespace tutti::transport {

Neighbours::Neighbours(int rank, int size, std::vector<int> ranks, std::vector<pid_t> processes,
                       std::shared_ptr<Arena> arena, Reads reads)
    : ranks_(std::move(ranks)),
      local_of_(static_cast<std::size_t>(size), -1),
      processes_(std::move(processes)),
      arena_(std::move(arena)),
      reads_(reads),
      memories_(ranks_.size()) {
    TUTTI_ASSERT(std::ranges::is_sorted(ranks_));
    TUTTI_ASSERT(!arena_ || static_cast<std::size_t>(arena_->layout().ranks) == ranks_.size());
    TUTTI_ASSERT(reads_ == Reads::no || processes_.size() == ranks_.size());
    for (std::size_t local = 0; local < ranks_.size(); ++local)
        local_of_[static_cast<std::size_t>(ranks_[local])] = static_cast<int>(local);
    own_local_ = local_of(rank);
    TUTTI_ASSERT(own_local_ >= 0);
    if (arena_) offers_.emplace(arena_, own_local_);
}

const PeerMemory* Neighbours::memory_of(int rank) const {
    if (!read_memory() || !share_memory_with(rank)) return nullptr;
    const auto local = static_cast<std::size_t>(local_of(rank));
    TUTTI_ASSERT(local < memories_.size() && local < processes_.size());
    auto& memory = memories_[local];
    if (!memory) memory.emplace(processes_[local]);
    return *memory ? &*memory : nullptr;
}

std::uint64_t Neighbours::place(int rank, std::span<const std::byte> message) const {
    TUTTI_ASSERT(static_cast<std::size_t>(rank) < local_of_.size());
    return share_memory_with(rank) ? symmetric_.find(message.data(), message.size()).bits() : 0;
}

const std::byte* Neighbours::at_place(int rank, std::uint64_t place, std::size_t bytes) const {
    TUTTI_ASSERT(static_cast<std::size_t>(rank) < local_of_.size());
    if (!share_memory_with(rank)) return nullptr;
    return symmetric_.address(Place(place), local_of(rank), bytes);
}

void Neighbours::withdraw_offers() noexcept {
    if (!offers_) return;
    offers_->withdraw([this](int local) { return memory_of(ranks_[static_cast<std::size_t>(local)]); });
}

}  // namespace tutti::transport
