// Deadline: the one notion of "until when" that every wait takes.
// A value; cheap to copy. Built from a duration at the start of an operation and passed down.
#pragma once

#include <algorithm>
#include <chrono>

namespace tutti {

using Clock = std::chrono::steady_clock;
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
    /// For poll(2) and epoll: rounded up, at most `slice`, never negative.
    int poll_ms(std::chrono::milliseconds slice, Instant now = Clock::now()) const {
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
