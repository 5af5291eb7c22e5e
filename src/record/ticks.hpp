// Ticks: the cheapest clock of the machine, and the conversion of its readings.
//
// On x86 the clock is the time stamp counter, if CPUID says that its rate is equal in all power states; on ARM the
// virtual counter; else CLOCK_MONOTONIC. There is no calibration in advance: a reader converts readings into times of
// day, from the advance of both clocks since the process began to record.
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

/// Converts ticks into times, by the clocks at its construction.
class TickScale {
 public:
    TickScale();
    /// The time of a reading, in nanoseconds since 1970; 0 for the reading 0 (never).
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

/// Sets the moment from which scales measure the clocks' advance; only the first call of a process counts.
void begin_ticks() noexcept;

}  // namespace tutti::record
