// What a simulation draws from its seed. Threads: one.
#pragma once

#include <cstdint>
#include <random>

namespace tutti::simulation {

/// A number below `n`, equal on all machines.
inline std::uint64_t below(std::mt19937_64& chance, std::uint64_t n) {
    return chance() % n;
}

}  // namespace tutti::simulation
