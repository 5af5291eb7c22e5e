// Ticks: the cheapest clock of the machine, and the meaning of its readings.
//
// On x86 the time stamp counter where it runs at one rate in all power states (CPUID says so), on ARM the virtual
// counter, else CLOCK_MONOTONIC. There is no calibration ahead: a reader turns a reading into a time of day, from the
// two clocks' advance since the process began to record.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <ctime>

namespace tutti::record {

/// Whether the CPU's counter can be trusted on this machine.
extern const bool counter_usable;

inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
    if (counter_usable) [[likely]]
        return __builtin_ia32_rdtsc();  // <x86intrin.h> takes a second in each file that includes it
#elif defined(__aarch64__)
    std::uint64_t value;
    asm volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#endif
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

/// The meaning of ticks, as of its construction.
class TickScale {
 public:
    TickScale();
    /// Nanoseconds since 1970 of a reading; 0 for 0 (never).
    std::int64_t unix_ns(std::uint64_t reading) const noexcept;
    double seconds(std::uint64_t duration) const noexcept {
        return static_cast<double>(duration) * ns_per_tick_ * 1e-9;
    }
    /// When this scale was made.
    std::int64_t now_ns() const noexcept { return now_ns_; }

 private:
    std::uint64_t now_;
    std::int64_t now_ns_;
    double ns_per_tick_;
};

/// Notes the moment from which scales measure; the first call of a process counts.
void begin_ticks() noexcept;

}  // namespace tutti::record
