// Memory that knows its device. In truth all of it is the host's, so that the fake's operations can work on it; whoever
// touches what has been freed crashes, and what has not been written holds 0xA5.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace fake_cuda {

enum class MemoryKind { device, pinned, pageable };

struct Place {
    MemoryKind kind = MemoryKind::pageable;
    int device = -1;
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;  // of the allocation, from begin on
};

class Memory {
 public:
    /// Null: there is none.
    void* allocate(MemoryKind kind, int device, std::size_t bytes);
    /// Frees what begins there, if it is of that kind.
    bool release(MemoryKind kind, const void* memory);
    Place place_of(const void* memory) const;
    /// Where these bytes are; nothing, if they leave an allocation.
    std::optional<Place> range(const void* memory, std::size_t bytes) const;
    std::size_t allocations(MemoryKind kind) const;

 private:
    mutable std::mutex mutex_;
    std::map<std::uintptr_t, Place> places_;
};

}  // namespace fake_cuda
