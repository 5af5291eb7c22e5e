// split_mix(): a bijective hash of 64-bit values; every bit of the result depends on every bit of the argument. It is
// the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#pragma once

#include <cstdint>

namespace tutti {

/// The finalizer without the increment: maps 0 to 0.
constexpr std::uint64_t mix_bits(std::uint64_t x) noexcept {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
}

constexpr std::uint64_t split_mix(std::uint64_t x) noexcept {
    return mix_bits(x + 0x9e3779b97f4a7c15ULL);
}

}  // namespace tutti
