// Waits: how long a rank has waited for each other rank, and when it was last seen to do so.
//
// Threads: note() by one thread at a time; everything else by any thread at any time.
#pragma once

#include "record/ticks.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::record {

class Waits {
 public:
    explicit Waits(std::size_t ranks) : by_rank_(ranks) {}

    /// This rank has waited for `peer` for `time`, as seen at `now`, a reading of ticks().
    void note(int peer, std::chrono::nanoseconds time, std::uint64_t now) noexcept;
    /// The time waited for each rank, in seconds.
    std::vector<double> seconds() const;
    /// The ranks that this rank was seen to wait for after `since_ns`, a time that this same `scale` has converted:
    /// with another scale, the order of close moments may be reversed.
    std::vector<int> seen_since(std::int64_t since_ns, const TickScale& scale) const;

 private:
    struct Wait {
        std::atomic<std::int64_t> total_ns{0};
        std::atomic<std::uint64_t> seen{0};  // ticks
    };
    std::vector<Wait> by_rank_;
};

}  // namespace tutti::record
