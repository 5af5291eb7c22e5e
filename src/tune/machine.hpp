// The machine: its description, and the costs of its use. Free functions; any thread.
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
    static constexpr std::int64_t busy_for_s = 60;  ///< a busy machine is looked at again after so many seconds

    /// Measuring again would gain nothing: all is known, or has been tried often.
    bool settled() const noexcept { return missing == 0 || attempts >= most_attempts; }
    /// The machine was busy, and that is a while ago.
    bool outdated(std::int64_t now) const noexcept {
        return circumstances.busy() && (now - busy_for_s >= circumstances.when || now < circumstances.when);
    }
    friend bool operator==(const Measurement&, const Measurement&) = default;
};

/// Measures the missing numbers, and stops at `deadline`, also when other programs keep the cores busy. Numbers that it
/// has no time for or cannot see (a line between two cores when it may use one) stay missing. Every number lies within
/// its field's bounds. Starts threads of its own, and ends them.
Measurement measure(const Deadline& deadline, Measurement known = {});

/// All that the numbers depend on, in a line: host, processor, cores that this process may use, caches, kernel,
/// version.
std::string topology();

}  // namespace tutti::tune
