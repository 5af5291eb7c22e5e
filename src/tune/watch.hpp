// Watch: whether others use the cores during a measurement. Where this system does not tell, they count as quiet.
//
// Threads: one, which makes it and asks it.
#pragma once

#include "core/deadline.hpp"
#include "tune/machine.hpp"

#include <cstdint>

namespace tutti::tune {

class Watch {
 public:
    Watch();
    /// Of the time since it was made.
    Circumstances circumstances();

 private:
    struct Ticks {
        std::uint64_t all = 0, stolen = 0;
    };
    void look();
    static double waited_ns();
    static Ticks cpu_ticks();

    Instant began_;
    double waited_ns_;
    Ticks cpu_;
    double spread_ = 0;
};

}  // namespace tutti::tune
