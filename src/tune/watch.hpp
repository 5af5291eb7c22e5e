// Watch: whether other processes use the cores during a measurement. Where the system does not report that, the cores
// count as quiet.
//
// Threads: one, which makes the object and calls it.
#pragma once

#include "core/deadline.hpp"

#include <cstdint>
#include <string>

namespace tutti::tune {

/// How quiet the machine was while it was measured.
struct Circumstances {
    double load = 0;        ///< processes that ran in the minute before, divided by the machine's cores
    double stolen = 0;      ///< fraction of the cores' time that other virtual machines used meanwhile
    double waited = 0;      ///< fraction of the time that the measuring thread waited for a core
    double spread = 0;      ///< mean time of one piece of work over its best, minus 1: 0.1 is 10 % longer
    std::int64_t when = 0;  ///< seconds since 1970; 0: not known

    /// Whether others used the cores, so that the numbers are worse than the machine. The load does not count: it
    /// includes the job that ran before.
    bool busy() const noexcept { return stolen > 0.05 || waited > 0.1 || spread > 0.5; }
    /// "load 0.2, 0 % stolen, ..."
    std::string to_string() const;
    friend bool operator==(const Circumstances&, const Circumstances&) = default;
};

class Watch {
 public:
    Watch();
    /// The circumstances from the construction of this object until now.
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
