// The machine: what it is, and what it costs to use it. Free functions; any thread.
#pragma once

#include "algorithm/tuning.hpp"
#include "core/deadline.hpp"

#include <cstdint>
#include <string>

namespace tutti::tune {

inline constexpr std::chrono::milliseconds measuring_limit{20};

/// The numbers of a machine, as far as they are known.
struct Measurement {
    algorithm::CostModel costs;                 ///< defaults for what is missing
    std::uint32_t missing = ~std::uint32_t{0};  ///< a bit for each of cost_fields()
    std::uint32_t attempts = 0;
    static constexpr std::uint32_t most_attempts = 4;

    /// There is nothing to be gained by measuring again: all is known, or has been tried often.
    bool settled() const noexcept { return missing == 0 || attempts >= most_attempts; }
    friend bool operator==(const Measurement&, const Measurement&) = default;
};

/// Measures what is missing, and stops at `deadline`, also when other programs keep the cores busy. What there was no
/// time for, and what this process cannot see (a line between two cores when it may use one), stays missing. Every
/// number lies within its field's bounds. Starts threads of its own, and ends them.
Measurement measure(const Deadline& deadline, Measurement known = {});

/// What the numbers depend on, in a line: host, processor, cores that this process may use, caches, kernel, version.
std::string topology();

}  // namespace tutti::tune
