// The log of a model: how it was wrapped, and how long its iterations took. tutti/ddp.hpp describes both.
//
// Threads: as the object's.
#pragma once

#include "core/deadline.hpp"

#include <tutti/ddp.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tutti::ddp {

/// Logs the block, where the debug level asks for it.
void report_initialized(const ProcessGroup& group, const std::vector<NamedParameter>& parameters,
                        const DistributedDataParallelOptions& options, const std::vector<std::size_t>& bucket_bytes);

/// The moments of one iteration, as they come.
struct Moments {
    Clock::time_point forward_began{};
    std::optional<Clock::time_point> backward_began{}, computed{}, sending_began{}, sent{};
};

/// The durations between them.
struct Durations {
    std::chrono::nanoseconds forward{0}, backward{0}, communication{0}, overlap{0};
};
Durations durations(const Moments& moments);

/// Averages over the iterations that are looked at.
class Statistics {
 public:
    /// Whether the iteration (from 1) is one, at the debug level that there is now.
    static bool wants(std::uint64_t iteration);
    void add(const Durations& iteration);
    void report(const ProcessGroup& group, const DistributedDataParallelOptions& options,
                std::size_t unused_bytes) const;

 private:
    Durations sums_;
    std::int64_t iterations_ = 0;
};

}  // namespace tutti::ddp
