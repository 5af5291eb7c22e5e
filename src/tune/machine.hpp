// The machine: its description, and its measured costs. Free functions; any thread.
#pragma once

#include "algorithm/tuning.hpp"
#include "core/deadline.hpp"
#include "tune/watch.hpp"

#include <cstdint>
#include <string>

namespace tutti::tune {

inline constexpr std::chrono::milliseconds measuring_limit{20};

/// The numbers of a machine, as far as they are known.
struct Measurement {
    algorithm::CostModel costs;                 ///< defaults for missing numbers
    std::uint32_t missing = ~std::uint32_t{0};  ///< a bit for each of cost_fields()
    std::uint32_t attempts = 0;
    Circumstances circumstances{};
    static constexpr std::uint32_t most_attempts = 4;
    static constexpr std::int64_t busy_for_s = 60;  ///< seconds until a busy machine is measured again

    /// Whether measuring again would gain nothing: all numbers are known, or were tried often.
    bool settled() const noexcept { return missing == 0 || attempts >= most_attempts; }
    /// Whether the machine was busy, at least busy_for_s ago.
    bool outdated(std::int64_t now) const noexcept {
        return circumstances.busy() && (now - busy_for_s >= circumstances.when || now < circumstances.when);
    }
    friend bool operator==(const Measurement&, const Measurement&) = default;
};

/// Measures the missing numbers, and stops at `deadline`, even if other programs keep the cores busy. Numbers without
/// time, or that cannot be measured (a line between two cores if it may use only one), stay missing. Every number lies
/// within its field's bounds. Starts threads of its own, and ends them.
Measurement measure(const Deadline& deadline, Measurement known = {});

/// Everything that the numbers depend on, in a line: host, processor, cores that this process may use, caches, kernel,
/// version.
std::string topology();

}  // namespace tutti::tune
