#include "record/ticks.hpp"

#include "core/assert.hpp"

#include <atomic>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tutti::record {
namespace {

std::int64_t clock_ns(clockid_t clock) {
    timespec now{};
    ::clock_gettime(clock, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

bool invariant_counter() {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007U, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
#elif defined(__aarch64__)
    return true;  // it always runs at one rate
#else
    return false;
#endif
}

struct Clocks {
    std::uint64_t reading = ticks();
    std::int64_t monotonic_ns = clock_ns(CLOCK_MONOTONIC), realtime_ns = clock_ns(CLOCK_REALTIME);
};

// All clocks at one moment. A thread that is interrupted between them reads them some milliseconds apart: so a reading
// that took far longer than the quickest one ever is tried again, and of three tries the quickest counts.
Clocks read_clocks() {
    static std::atomic<std::uint64_t> quickest{0};  // ticks; 0: nobody knows yet
    const std::uint64_t usual = quickest.load(std::memory_order_relaxed);
    Clocks best;
    std::uint64_t least = ticks() - best.reading;
    for (int more = 2; more > 0 && least / 2 > usual; --more) {
        const Clocks clocks;
        const std::uint64_t took = ticks() - clocks.reading;
        if (took >= least) continue;
        least = took;
        best = clocks;
    }
    if (usual == 0 || least < usual) quickest.store(least, std::memory_order_relaxed);
    return best;
}

const Clocks& begin() {
    static const Clocks instance = read_clocks();
    return instance;
}

}  // namespace

const bool counter_usable = invariant_counter();

void begin_ticks() noexcept {
    (void)begin();
}

TickScale::TickScale() : now_(0), now_ns_(0), ns_per_tick_(1) {
    const Clocks& first = begin();
    const Clocks now = read_clocks();
    now_ = now.reading;
    const std::int64_t elapsed_ns = now.monotonic_ns - first.monotonic_ns;
    now_ns_ = now.realtime_ns;
    if (now_ > first.reading && elapsed_ns > 0)
        ns_per_tick_ = static_cast<double>(elapsed_ns) / static_cast<double>(now_ - first.reading);
    TUTTI_ASSERT(ns_per_tick_ > 0 && now_ns_ > 0);
}

std::int64_t TickScale::unix_ns(std::uint64_t reading) const noexcept {
    if (reading == 0) return 0;
    // A record may be younger than the scale.
    const auto distance = static_cast<double>(static_cast<std::int64_t>(now_ - reading));
    return now_ns_ - static_cast<std::int64_t>(distance * ns_per_tick_);
}

}  // namespace tutti::record
