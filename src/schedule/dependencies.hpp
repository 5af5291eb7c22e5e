// Dependencies: finds the earlier steps for which each step of one rank has to wait: those that wrote elements that it
// touches, and those that read elements that it writes. A step can name further ones.
//
// Describe the steps in their order, from number 0 on: begin(), what the step does, end(). Within a step, all reads
// count as earlier than all writes.
//
// Threads: one at a time.
#pragma once

#include "core/interval_map.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::schedule {

class Dependencies {
 public:
    /// Begins the next step.
    void begin();
    void reads(const Chunk& chunk);
    void writes(const Chunk& chunk);
    /// The step also waits for `step`; -1: for none.
    void waits_for(std::int64_t step);
    /// The step waits for all steps from `first` to the one before it.
    void waits_for_all(std::int64_t first = 0);
    /// Ends the step. Returns the numbers of the steps for which it waits, ascending; valid until the next begin().
    std::span<const std::uint32_t> end();
    /// How many ranges of elements the steps have touched so far: the cost of this analysis.
    std::uint64_t touched() const noexcept { return touched_; }

 private:
    // How steps have used elements of a buffer.
    struct Use {
        std::int64_t writer = -1;            // the step that last wrote them
        std::vector<std::uint32_t> readers;  // the steps that have read them since
        Use from(std::uint64_t /*count*/) const { return *this; }
    };
    IntervalMap<Use>& uses_of(const Chunk& chunk);

    std::vector<IntervalMap<Use>> uses_;  // by Buffer
    std::int64_t step_ = -1;              // the current step, or the last one
    std::vector<std::uint32_t> waits_;    // the steps for which the current one waits
    std::uint64_t touched_ = 0;
    std::vector<Chunk> read_now_, written_now_;
};

}  // namespace tutti::schedule
