// Spin: decides whether to poll for a short while before sleeping. A sleep and its wakeup take longer than a quick
// answer; but on busy cores polling keeps other threads from working.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tutti::store {

/// How many cores this process may use.
int usable_cores();

class Spin {
 public:
    /// Whether to poll this time. After polls in vain it returns false for a number of calls, which doubles, up to a
    /// limit, while polls stay in vain.
    bool worth_it() {
        TUTTI_ASSERT(resting_ >= 0 && resting_ <= rest_max);
        if (resting_ == 0) return true;
        --resting_;
        return false;
    }
    /// The result of a poll.
    void note(bool came_in_time) {
        TUTTI_ASSERT(patience_ >= 0 && patience_ <= patience_max);
        TUTTI_ASSERT(rest_ >= rest_min && rest_ <= rest_max);
        if (came_in_time) {
            patience_ = std::min(patience_ + 1, patience_max);
            rest_ = rest_min;
        } else if (--patience_ < 0) {
            patience_ = 0;
            resting_ = rest_;
            rest_ = std::min(rest_ * 2, rest_max);
        }
    }

 private:
    static constexpr int patience_max = 3;
    static constexpr int rest_min = 16;
    static constexpr int rest_max = 256;
    int patience_ = patience_max;
    int rest_ = rest_min;
    int resting_ = 0;
};

/// Counts the clients that have sent a request within about a millisecond.
class Crowd {
 public:
    /// `window`: the client's own variable, which this updates.
    void heard(std::uint64_t now_ns, std::uint64_t& window) {
        TUTTI_ASSERT(now_ns >= since_ns_ && window <= window_);
        if (now_ns - since_ns_ > window_ns) {
            // After a whole window without requests, the last count is obsolete.
            last_ = now_ns - since_ns_ > 2 * window_ns ? 0 : current_;
            current_ = 0;
            since_ns_ = now_ns;
            ++window_;
        }
        if (std::exchange(window, window_) != window_) ++current_;
    }
    int size() const noexcept { return std::max(current_, last_); }

 private:
    static constexpr std::uint64_t window_ns = 1'000'000;
    std::uint64_t since_ns_ = 0;
    std::uint64_t window_ = 1;
    int current_ = 0;
    int last_ = 0;
};

}  // namespace tutti::store
