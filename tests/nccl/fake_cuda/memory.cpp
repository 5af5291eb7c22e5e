#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace fake_cuda {

void* Memory::allocate(MemoryKind kind, int device, std::size_t bytes) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    std::memset(memory, 0xA5, bytes);
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    const std::lock_guard lock(mutex_);
    places_[begin] = {kind, device, begin, bytes};
    return memory;
}

bool Memory::release(MemoryKind kind, const void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == places_.end() || found->second.kind != kind) return false;
    ::munmap(reinterpret_cast<void*>(found->first), found->second.bytes);
    places_.erase(found);
    return true;
}

Place Memory::place_of(const void* memory) const {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const std::lock_guard lock(mutex_);
    auto after = places_.upper_bound(address);
    if (after == places_.begin()) return {};
    const Place& place = std::prev(after)->second;
    return address < place.begin + place.bytes ? place : Place{};
}

std::optional<Place> Memory::range(const void* memory, std::size_t bytes) const {
    const Place place = place_of(memory);
    if (place.kind == MemoryKind::pageable) return place;
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    if (bytes > place.begin + place.bytes - address) return std::nullopt;
    return place;
}

std::size_t Memory::allocations(MemoryKind kind) const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(
        std::ranges::count_if(places_, [&](const auto& entry) { return entry.second.kind == kind; }));
}

}  // namespace fake_cuda
