// How one row is sampled: tutti's ranks and the peers' programs (bench/peers) include this, so that all are measured
// alike. Needs nothing of tutti. Each rank calls it from one thread.
#pragma once

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace tutti::bench {

struct Sampling {
    int iterations = 0;        ///< samples of each row; 0: as many as fit in row_seconds
    int warmup = 24;           ///< calls before the samples: tutti looks after buffers that are used often
    double row_seconds = 0.3;  ///< time for each row
    bool fill = false;         ///< go on until row_seconds are over: beside other work a few samples tell little
};

/// The calls that sampling needs of the measured implementation.
struct Ranks {
    std::function<void()> barrier;
    std::function<double(double)> agree;              ///< rank 0's value, on all ranks
    std::function<void(std::vector<double>&)> means;  ///< element-wise mean over the ranks, on all ranks
    int processes = 1;                                ///< the number of processes; 1 where ranks are threads
    std::function<double()> line_ns = [] {
        return 0.0;
    };  ///< a cache line's way between them now, at rank 0; 0: unknown
};

struct Sampled {
    std::vector<double> times_us;  ///< of single calls, each the mean over the ranks, sorted
    double mean_us = 0;            ///< of them all
    double cpu_us = 0;             ///< user and system time of one call, all ranks together
    double line_before_ns = 0, line_after_ns = 0;
};

/// User and system time of this process so far, with all its threads.
inline double cpu_time_us() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto us = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
    };
    return us(usage.ru_utime) + us(usage.ru_stime);
}

/// The CPU for rank i: number i of those allowed; -1 when there are not enough.
inline int cpu_of(int rank, int ranks) {
    cpu_set_t allowed;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < ranks) return -1;
    for (int cpu = 0, index = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &allowed) && index++ == rank) return cpu;
    }
    return -1;
}
/// The calling thread runs on this CPU alone.
inline void stay_on(int cpu) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    CPU_SET(cpu, &mine);
    ::sched_setaffinity(0, sizeof mine, &mine);
}
/// False where there are not enough.
inline bool pin_to(int rank, int ranks) {
    const int cpu = cpu_of(rank, ranks);
    if (cpu >= 0) stay_on(cpu);
    return cpu >= 0;
}

inline double quantile(const std::vector<double>& sorted, double q) {
    const double at = q * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

/// All ranks call it.
template <class Call>
Sampled sample(const Sampling& sampling, const Ranks& ranks, Call&& call) {
    using Clock = std::chrono::steady_clock;
    const auto us_since = [](Clock::time_point start) {
        return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    };
    for (int i = 0; i < sampling.warmup; ++i) call();
    // Several calls a sample where one is too short for the clock; at least 5 samples, more while time is left.
    const double line_before_ns = ranks.line_ns();
    ranks.barrier();
    auto start = Clock::now();
    for (int i = 0; i < 3; ++i) call();
    const double one_us = ranks.agree(us_since(start) / 3);
    const int batch = std::clamp(static_cast<int>(20 / std::max(one_us, 0.05)), 1, 256);
    const double fit = sampling.row_seconds * 1e6 / std::max(one_us * batch, 1.0) / (sampling.fill ? 50 : 1);
    const int count = sampling.iterations > 0 ? sampling.iterations : std::clamp(static_cast<int>(fit), 5, 2000);

    constexpr std::size_t filled = 200'000;
    std::vector<double> times;
    times.reserve(sampling.fill ? filled + 2000 : static_cast<std::size_t>(count) + 1);
    ranks.barrier();
    const double cpu_before_us = cpu_time_us();
    const auto begin = Clock::now();
    do {
        for (int sample = 0; sample < count; ++sample) {
            start = Clock::now();
            for (int i = 0; i < batch; ++i) call();
            times.push_back(us_since(start) / batch);
        }
    } while (sampling.fill && times.size() < filled && ranks.agree(us_since(begin)) < sampling.row_seconds * 1e6);
    const double mean_us = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
    times.push_back((cpu_time_us() - cpu_before_us) / (static_cast<double>(batch) * static_cast<double>(times.size())));
    const double line_after_ns = ranks.line_ns();
    ranks.means(times);
    const double cpu_us = times.back() * ranks.processes;
    times.pop_back();
    std::ranges::sort(times);
    return {std::move(times), mean_us, cpu_us, line_before_ns, line_after_ns};
}

}  // namespace tutti::bench
