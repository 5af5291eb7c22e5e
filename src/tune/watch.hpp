// Watch: whether other processes use the cores during a measurement. Where the system does not report that, the cores
// count as quiet.
//
// Threads: one, which makes it and asks it.
#pragma once

#include "core/deadline.hpp"

#include <cstdint>
#include <string>

namespace tutti::tune {

/// How quiet the machine was while it was measured.
struct Circumstances {
    double load = 0;        ///< processes that ran in the minute before, for each core of the machine
    double stolen = 0;      ///< part of the cores' time that other virtual machines had meanwhile
    double waited = 0;      ///< part of the time that the measuring thread could have run and had no core
    double spread = 0;      ///< how much longer the same piece of work took on average than at best: 0.1 is a tenth
    std::int64_t when = 0;  ///< seconds since 1970; 0: not known

    /// The numbers are worse than the machine is: others had its cores. The load alone says nothing about that: it
    /// counts the job that was there before.
    bool busy() const noexcept { return stolen > 0.05 || waited > 0.1 || spread > 0.5; }
    /// "load 0.2, 0 % stolen, ..."
    std::string to_string() const;
    friend bool operator==(const Circumstances&, const Circumstances&) = default;
};

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
