// What both programs have in common: the sizes, and how one exchange is timed. Needs nothing of tutti.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace tutti::bench {

inline constexpr int halo_sizes[] = {16, 32, 64, 128};  // inner cells of a block along each of three dimensions

/// The time of one call in the quickest of 150 runs, in microseconds: other programs on the machine only add to it. The
/// calls of one run follow each other at once, for about a millisecond; `barrier` comes before each run. Every rank
/// calls it alike.
template <class Barrier, class Call>
double time_of(int size, Barrier&& barrier, Call&& call) {
    const int calls = std::max(2, 40 * 256 / (size * size));
    double least = 0;
    for (int run = -20; run < 150; ++run) {  // the first ones are for warming up
        barrier();
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) call();
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        if (run == 0 || (run > 0 && took.count() / calls < least)) least = took.count() / calls;
    }
    return least;
}

inline void print_row(const char* what, int size, double us) {
    std::printf("%s %d %.3f\n", what, size, us);
    std::fflush(stdout);
}

}  // namespace tutti::bench
