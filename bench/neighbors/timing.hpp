// What both programs have in common: the sizes, and how one exchange is timed. Needs nothing of tutti.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace tutti::bench {

inline constexpr int halo_sizes[] = {16, 32, 64, 128};  // inner cells of a block along each of three dimensions

/// The median over runs of the time of one call, in microseconds. The calls of one run follow each other at once;
/// `barrier` comes before each run. Every rank calls it alike.
template <class Barrier, class Call>
double time_of(int size, Barrier&& barrier, Call&& call) {
    const int calls = std::max(40, 3200 / (size * size / 64));
    std::vector<double> runs;
    for (int run = -1; run < 9; ++run) {  // the first is for warming up
        barrier();
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) call();
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        if (run >= 0) runs.push_back(took.count() / calls);
    }
    std::nth_element(runs.begin(), runs.begin() + 4, runs.end());
    return runs[4];
}

inline void print_row(const char* what, int size, double us) {
    std::printf("%s %d %.3f\n", what, size, us);
    std::fflush(stdout);
}

}  // namespace tutti::bench
