// PinnedMemory: host memory that a device copies to and from by itself, kept for the next user. The driver takes long
// to allocate it, and releasing it waits for all work of the device, which may wait for another rank: so it goes back
// to the driver only when the last group that has used it is gone.
//
// Threads: any.
#pragma once

#include "nccl/streams.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace tutti::nccl {

class PinnedMemory {
 public:
    /// The one pool of all groups on this driver's devices.
    static std::shared_ptr<PinnedMemory> of(const std::shared_ptr<const Driver>& driver);
    explicit PinnedMemory(std::shared_ptr<const Driver> driver) : driver_(std::move(driver)) {}

    /// At least `bytes`.
    Memory take(std::size_t bytes);
    void give_back(Memory memory);
    /// The bytes that nobody uses now.
    std::size_t idle_bytes() const;

 private:
    const std::shared_ptr<const Driver> driver_;
    mutable std::mutex mutex_;
    std::multimap<std::size_t, Memory> free_;  // by size
};

}  // namespace tutti::nccl
