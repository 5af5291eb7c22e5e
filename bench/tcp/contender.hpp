// The parts that the contenders' programs share: the arguments "SECONDS PIN BYTES BYTES ...", the sampling, the answer.
// Rank 0 prints "BYTES MEDIAN_US" a line. Threads: one.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace contender {

using Clock = std::chrono::steady_clock;

struct Ranks {
    int rank = 0;
    int size = 0;
    std::function<void()> barrier;
    std::function<double(double)> mean;  ///< over the ranks
};

inline double us_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

inline void pin_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    ::sched_setaffinity(0, sizeof set, &set);
}

/// Median over samples of the ranks' mean time of one call. As `tutti bench` does it: several calls a sample where
/// one is too short for the clock.
inline double median_us(const Ranks& ranks, double seconds, const std::function<void()>& call) {
    for (int i = 0; i < 5; ++i) call();
    ranks.barrier();
    auto start = Clock::now();
    for (int i = 0; i < 3; ++i) call();
    const double one = std::max(0.05, ranks.mean(us_since(start) / 3));
    const int batch = std::clamp(static_cast<int>(20 / one), 1, 256);
    const int samples = std::clamp(static_cast<int>(seconds * 1e6 / (one * batch)), 5, 20000);
    std::vector<double> times;
    ranks.barrier();
    for (int s = 0; s < samples; ++s) {
        start = Clock::now();
        for (int i = 0; i < batch; ++i) call();
        times.push_back(us_since(start) / batch);
    }
    std::ranges::sort(times);
    return ranks.mean(times[times.size() / 2]);
}

/// Makes the call for a number of floats; the buffer holds 1 in every element before the first call.
using Maker = std::function<std::function<void()>(float* data, std::size_t count)>;

inline int run(int argc, char** argv, const Ranks& ranks, const Maker& make) {
    if (argc < 4) return 2;
    const double seconds = std::atof(argv[1]);
    if (std::string(argv[2]) == "pin") pin_to(ranks.rank);
    for (int i = 3; i < argc; ++i) {
        const std::size_t bytes = std::stoull(argv[i]);
        std::vector<float> data(bytes / sizeof(float), 1.0F);
        const auto call = make(data.data(), data.size());
        call();
        for (const float value : data) {
            if (value != static_cast<float>(ranks.size)) return std::puts("wrong"), 1;
        }
        std::ranges::fill(data, 0.0F);  // sums stay finite
        const double us = median_us(ranks, seconds, call);
        if (ranks.rank == 0) std::printf("%zu %.3f\n", bytes, us);
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace contender
