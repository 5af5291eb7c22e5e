// RateLimit: limits log lines. An event that unauthenticated peers can cause at will gets one line a minute.
//
// Threads: any.
#pragma once

#include "core/assert.hpp"
#include "core/deadline.hpp"

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace tutti {

class RateLimit {
 public:
    explicit RateLimit(Clock::duration pause = std::chrono::minutes(1)) : pause_(pause) {}
    /// Counts an event. Returns the number of events since the last log line if a new line is due, else nullopt.
    std::optional<std::uint64_t> happened(Instant now = Clock::now()) {
        const std::lock_guard lock(mutex_);
        ++times_;
        TUTTI_ASSERT(times_ > 0);
        if (said_ && now - *said_ < pause_) return std::nullopt;
        said_ = now;
        return std::exchange(times_, 0);
    }

 private:
    Clock::duration pause_;
    std::mutex mutex_;
    std::optional<Instant> said_;
    std::uint64_t times_ = 0;
};

}  // namespace tutti
