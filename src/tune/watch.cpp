#include "tune/watch.hpp"

#include "core/assert.hpp"
#include "core/this_host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

namespace tutti::tune {

Watch::Watch() : began_(Clock::now()), waited_ns_(waited_ns()), cpu_(cpu_ticks()) {
    look();
}

Circumstances Watch::circumstances() {
    look();
    Circumstances now{.spread = spread_, .when = std::time(nullptr)};
    std::array<double, 1> load{};
    if (::getloadavg(load.data(), 1) == 1) now.load = load[0] / this_host::cpus();
    const Ticks cpu = cpu_ticks();
    // One tick is ten milliseconds, which is half of all the time there is: a single one says nothing.
    if (cpu.stolen > cpu_.stolen + 1 && cpu.all > cpu_.all)
        now.stolen = static_cast<double>(cpu.stolen - cpu_.stolen) / static_cast<double>(cpu.all - cpu_.all);
    const double ns = std::chrono::duration<double, std::nano>(Clock::now() - began_).count();
    now.waited = std::clamp((waited_ns() - waited_ns_) / ns, 0.0, 1.0);
    TUTTI_ASSERT(now.stolen >= 0 && now.stolen <= 1 && now.waited >= 0 && now.waited <= 1 && now.spread >= 0);
    return now;
}

// The same work again and again: nothing in it may take longer once than another time.
void Watch::look() {
    constexpr int repeats = 32, turns = 4000;
    double best = 0, sum = 0;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        const Instant start = Clock::now();
        for (int turn = 0; turn < turns; ++turn) asm volatile("" : : "r"(turn));
        const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
        best = repeat == 0 ? us : std::min(best, us);
        sum += us;
    }
    if (best > 0) spread_ = std::max(spread_, sum / repeats / best - 1);
    TUTTI_ASSERT(spread_ >= 0);
}

// Nanoseconds that this thread has waited for a core.
double Watch::waited_ns() {
    std::ifstream file("/proc/thread-self/schedstat");
    double ran = 0, waited = 0;
    return file >> ran >> waited ? waited : 0;
}

// Of all cores.
Watch::Ticks Watch::cpu_ticks() {
    std::ifstream file("/proc/stat");
    std::string name;
    Ticks ticks;
    constexpr int stolen = 7;  // after user, nice, system, idle, iowait, irq and softirq
    file >> name;
    std::uint64_t value = 0;
    for (int i = 0; i <= stolen && file >> value; ++i) {
        ticks.all += value;
        if (i == stolen) ticks.stolen = value;
    }
    TUTTI_ASSERT(ticks.stolen <= ticks.all);
    return ticks;
}

std::string Circumstances::to_string() const {
    return fmt::format(
        "load {:.1f} a core, {:.0f} % of the time stolen, {:.0f} % waited for a core, repeats {:.0f} % apart", load,
        100 * stolen, 100 * waited, 100 * spread);
}

}  // namespace tutti::tune
