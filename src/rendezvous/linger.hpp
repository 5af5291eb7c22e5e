// Linger: how long a rank that leaves stays for its neighbours' sake: a second, of time in which it runs. Whoever stays
// looks every `longest_look`; where two looks are farther apart, the process was stopped for the rest of that time.
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
    /// This rank looks: whether it has stayed long enough.
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
