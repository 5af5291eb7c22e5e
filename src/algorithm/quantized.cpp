#include "algorithm/quantized.hpp"

#include "core/assert.hpp"

#include <algorithm>

namespace tutti::algorithm {

std::vector<std::uint64_t> even_slices(std::uint64_t count, int ranks, std::uint64_t block, std::uint64_t tile) {
    TUTTI_ASSERT(ranks > 0 && block > 0 && tile > 0);
    const std::uint64_t unit = block <= tile ? block : 64;
    const std::uint64_t units = (count + unit - 1) / unit;
    const auto n = static_cast<std::uint64_t>(ranks);
    const auto end_of = [&](std::uint64_t slice) {
        const std::uint64_t first = units / n * slice + std::min(units % n, slice);
        return std::min(count, first * unit);
    };
    std::vector<std::uint64_t> counts;
    for (std::uint64_t r = 0; r < n; ++r) counts.push_back(end_of(r + 1) - end_of(r));
    TUTTI_ASSERT(counts.size() == n);
    return counts;
}

std::uint64_t tile_elements(std::uint64_t block, bool one_host) {
    TUTTI_ASSERT(block > 0);
    const std::uint64_t most = one_host ? 1 << 15 : 1 << 17;
    return block <= most ? most / block * block : most;
}

}  // namespace tutti::algorithm
