// Clock: the library's source of time; a simulation can replace it.
//
// Deadline: the time at which a wait gives up; every wait takes one.
// A value; cheap to copy. Built from a duration at the start of an operation and passed down.
#pragma once

#include "core/assert.hpp"

#include <algorithm>
#include <chrono>

namespace tutti {

/// The steady clock; on a thread that simulates, a time that the simulation sets.
class Clock {
 public:
    using time_point = std::chrono::steady_clock::time_point;
    using duration = time_point::duration;
    using rep = duration::rep;
    using period = duration::period;
    static constexpr bool is_steady = true;

    static time_point now() noexcept { return simulated_ == nullptr ? std::chrono::steady_clock::now() : *simulated_; }
    /// Makes `*time` the time on this thread; null: the steady clock again.
    static void simulate(const time_point* time) noexcept { simulated_ = time; }

 private:
    inline static thread_local constinit const time_point* simulated_ [[gnu::tls_model("initial-exec")]] = nullptr;
};
using Instant = Clock::time_point;

class Deadline {
 public:
    /// Never expires; only for waits that something else ends.
    static Deadline never() { return Deadline(Instant::max()); }
    static Deadline at(Instant when) { return Deadline(when); }
    static Deadline after(Clock::duration duration, Instant now = Clock::now()) {
        if (duration >= Instant::max() - now) return never();
        return Deadline(now + duration);
    }

    bool is_never() const { return when_ == Instant::max(); }
    bool expired(Instant now = Clock::now()) const { return now >= when_; }
    /// Zero when expired.
    Clock::duration remaining(Instant now = Clock::now()) const {
        return now >= when_ ? Clock::duration::zero() : when_ - now;
    }
    /// The remaining time, for functions in which a timeout of zero has a special meaning: rounded up, at least 1 ms.
    std::chrono::milliseconds timeout(Instant now = Clock::now()) const {
        return std::max(std::chrono::milliseconds(1), std::chrono::ceil<std::chrono::milliseconds>(remaining(now)));
    }
    /// The remaining milliseconds, for poll(2) and epoll: rounded up, at most `slice`, never negative.
    int poll_ms(std::chrono::milliseconds slice, Instant now = Clock::now()) const {
        TUTTI_ASSERT(slice.count() >= 0);
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(std::min<Clock::duration>(remaining(now), slice));
        return static_cast<int>(left.count());
    }
    Instant when() const { return when_; }

 private:
    explicit Deadline(Instant when) : when_(when) {}
    Instant when_;
};

}  // namespace tutti
