// Waits: for how long a rank has waited for each other one, and when it was last seen to do so.
//
// Threads: note() by one thread at a time; everything else by any thread at any time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::record {

class Waits {
 public:
    explicit Waits(std::size_t ranks) : by_rank_(ranks) {}

    /// This rank has waited for `peer`, as seen at `now_ns` since 1970.
    void note(int peer, std::chrono::nanoseconds time, std::int64_t now_ns) noexcept;
    /// By rank, in seconds.
    std::vector<double> seconds() const;
    /// Those that it was seen to wait for after `since_ns`.
    std::vector<int> seen_since(std::int64_t since_ns) const;

 private:
    struct Wait {
        std::atomic<std::int64_t> total_ns{0}, seen_ns{0};
    };
    std::vector<Wait> by_rank_;
};

}  // namespace tutti::record
