// Linger: how long a leaving rank stays for its neighbours: one second of its own running time. It checks every
// `longest_look`; a longer interval between checks counts as `longest_look`, since the process was stopped.
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"

#include <algorithm>
#include <chrono>

namespace tutti::rendezvous {

class Linger {
 public:
    static constexpr std::chrono::milliseconds longest_look{100};

    explicit Linger(Instant now) : looked_(now) {}
    /// One check: whether this rank has stayed long enough.
    bool is_over(Instant now) {
        left_ -= std::min<Clock::duration>(now - looked_, longest_look);
        looked_ = now;
        return left_ <= Clock::duration::zero();
    }

 private:
    Instant looked_;
    Clock::duration left_ = std::chrono::seconds(1);
};

}  // namespace tutti::rendezvous
