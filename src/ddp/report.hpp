// The log of a model: its initialisation, and the times of its iterations. tutti/ddp.hpp describes both.
//
// Threads: as DistributedDataParallel.
#pragma once

#include "core/deadline.hpp"

#include <tutti/ddp.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tutti::ddp {

/// Logs the initialisation, if the debug level asks for it.
void report_initialized(const ProcessGroup& group, const std::vector<NamedParameter>& parameters,
                        const DistributedDataParallelOptions& options, const std::vector<std::size_t>& bucket_bytes);

/// The moments of one iteration, in order.
struct Moments {
    Clock::time_point forward_began{};
    std::optional<Clock::time_point> backward_began{}, computed{}, sending_began{}, sent{};
};

/// The durations between these moments.
struct Durations {
    std::chrono::nanoseconds forward{0}, backward{0}, communication{0}, overlap{0};
};
Durations durations(const Moments& moments);

/// Averages over the measured iterations.
class Statistics {
 public:
    /// Whether the iteration (from 1) is measured, at the present debug level.
    static bool wants(std::uint64_t iteration);
    void add(const Durations& iteration);
    void report(const ProcessGroup& group, const DistributedDataParallelOptions& options,
                std::size_t unused_bytes) const;

 private:
    Durations sums_;
    std::int64_t iterations_ = 0;
};

/// Records the moments of measured iterations, and logs the averages at the end of each. In other iterations, calls do
/// nothing. Of several calls for one moment the first counts.
class Timing {
 public:
    void begin(bool is_looked_at);
    /// Whether the open iteration is measured.
    bool is_on() const noexcept { return is_on_; }
    void backward_begins() { note(moments_.backward_began); }
    void all_are_computed() { note(moments_.computed); }
    void sending_begins() { note(moments_.sending_began); }
    /// A bucket was complete at `when`; the last bucket counts.
    void arrived(Clock::time_point when);
    void end(const ProcessGroup& group, const DistributedDataParallelOptions& options, std::size_t unused_bytes);

 private:
    void note(std::optional<Clock::time_point>& moment) const {
        if (is_on_ && !moment) moment = Clock::now();
    }

    bool is_on_ = false;
    Moments moments_;
    Statistics statistics_;
};

}  // namespace tutti::ddp
