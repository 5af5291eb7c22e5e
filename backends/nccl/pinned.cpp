#include "nccl/pinned.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace tutti::nccl {
namespace {

constexpr std::size_t least_bytes = 4096;

}  // namespace

std::shared_ptr<PinnedMemory> PinnedMemory::of(const std::shared_ptr<const Driver>& driver) {
    static std::mutex mutex;
    static auto& all = *new std::map<const Driver*, std::weak_ptr<PinnedMemory>>;  // groups may outlive static objects
    const std::lock_guard lock(mutex);
    std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<PinnedMemory>& known = all[driver.get()];
    std::shared_ptr<PinnedMemory> memory = known.lock();
    if (!memory) known = memory = std::make_shared<PinnedMemory>(driver);
    return memory;
}

// Sizes are powers of two, so that the next piece, which has nearly the same size, finds one that fits.
Memory PinnedMemory::take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(std::max(bytes, least_bytes));
    {
        const std::lock_guard lock(mutex_);
        const auto found = free_.find(size);
        if (found != free_.end()) {
            Memory memory = std::move(found->second);
            free_.erase(found);
            return memory;
        }
    }
    return Memory(driver_, -1, size);
}

void PinnedMemory::give_back(Memory memory) {
    if (memory.data() == nullptr) return;
    const std::lock_guard lock(mutex_);
    const std::size_t bytes = memory.bytes();
    free_.emplace(bytes, std::move(memory));
}

std::size_t PinnedMemory::idle_bytes() const {
    const std::lock_guard lock(mutex_);
    std::size_t bytes = 0;
    for (const auto& [size, memory] : free_) bytes += size;
    return bytes;
}

}  // namespace tutti::nccl
