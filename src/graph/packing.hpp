// Packing: places blocks with limited lifetimes in one arena, so that blocks alive at the same time do not overlap.
//
// Pure functions. The problem is dynamic storage allocation with known lifetimes, which is NP-complete; this is greedy
// by size and by other orders (Y. Pisarchyk, J. Lee: Efficient memory management for deep neural net inference, 2020),
// each improved by moving the block that ends highest to the front.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::graph {

struct Lifetime {
    int first = 0, last = 0;  ///< both inclusive
    std::uint64_t bytes = 0;
};
struct Packing {
    std::vector<std::uint64_t> offsets;  ///< multiples of packing_alignment
    std::uint64_t bytes = 0;             ///< size of the arena
};
inline constexpr std::uint64_t packing_alignment = 64;

/// cost     n² for n blocks, times up to 300 tries for few of them.
Packing pack(std::span<const Lifetime> blocks);
/// The most bytes alive at the same time: no arena can be smaller.
std::uint64_t most_alive(std::span<const Lifetime> blocks);

}  // namespace tutti::graph
