// How tutti's bench of windows and MPI's measure: the same loops.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>

namespace tutti::bench {

/// Nanoseconds of one call: the median of blocks of `calls` calls. `meet`: a barrier, before each block.
template <class Meet, class Call>
double ns_of(int calls, const Meet& meet, const Call& call) {
    using Clock = std::chrono::steady_clock;
    std::array<double, 15> blocks{};
    for (double& block : blocks) {
        meet();
        const auto begin = Clock::now();
        for (int i = 0; i < calls; ++i) call();
        block = std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / calls;
    }
    std::ranges::sort(blocks);
    return blocks[blocks.size() / 2];
}

}  // namespace tutti::bench
