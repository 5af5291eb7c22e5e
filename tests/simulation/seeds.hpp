// Which seeds a simulation runs: as many fixed ones as fresh ones, whose first is printed. SIMULATION_SEED=N runs that
// one alone, SIMULATION_COUNT=N so many fresh ones.
//
// Threads: any.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

namespace tutti::simulation {

struct Seeds {
    std::uint64_t first = 0, last = 0;  // behind the last
    std::uint64_t count() const { return last - first; }
};

/// Of the environment; `otherwise`: it is not there. A number that is none ends the program.
inline std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
    const char* const text = std::getenv(variable);
    if (text == nullptr) return otherwise;
    std::uint64_t number = 0;
    const char* const end = text + std::strlen(text);
    if (const auto read = std::from_chars(text, end, number); read.ec == std::errc() && read.ptr == end && end != text)
        return number;
    std::fprintf(stderr, "%s is \"%s\", expected was a whole number\n", variable, text);
    std::exit(2);
}

/// A part of the fixed ones.
inline Seeds fixed_seeds(std::uint64_t part, std::uint64_t count) {
    if (std::getenv("SIMULATION_SEED") == nullptr) return {part * count, (part + 1) * count};
    const std::uint64_t only = number_of("SIMULATION_SEED", 0);
    return {only, only + 1};
}

/// Fresh ones, far from the fixed ones; none where one seed is wanted.
inline Seeds fresh_seeds(std::uint64_t count) {
    if (std::getenv("SIMULATION_SEED") != nullptr) return {};
    const std::uint64_t first = (std::uint64_t{std::random_device{}()} << 24) + (std::uint64_t{1} << 32);
    const Seeds seeds{first, first + number_of("SIMULATION_COUNT", count)};
    std::printf("fresh seeds: %llu to %llu\n", static_cast<unsigned long long>(seeds.first),
                static_cast<unsigned long long>(seeds.last - 1));
    std::fflush(stdout);
    return seeds;
}

/// How to see one again.
inline std::string command_for(std::uint64_t seed, const std::string& test) {
    return "seed " + std::to_string(seed) + "; once more: SIMULATION_SEED=" + std::to_string(seed) + " build/tests/" +
           test + " --gtest_filter='Seeds/*/0'";
}

}  // namespace tutti::simulation
