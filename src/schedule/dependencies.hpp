// Dependencies: the earlier steps that each step of one rank has to wait for. These are the ones that wrote elements
// that it touches, and those that have read elements that it writes; a step can name further ones.
//
// The steps come in their order, from number 0 on: begin(), what the step does, end(). Within a step, what it reads
// counts as read before anything is written.
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
    /// The next step begins.
    void begin();
    void reads(const Chunk& chunk);
    void writes(const Chunk& chunk);
    /// It waits for that step, too; -1: for none.
    void waits_for(std::int64_t step);
    /// It waits for all steps before it from `first` on.
    void waits_for_all(std::int64_t first = 0);
    /// Ends the step. The numbers of those that it waits for rise; they stay until the next begin().
    std::span<const std::uint32_t> end();
    /// How many stretches of elements the steps have touched so far: what all of this has cost.
    std::uint64_t touched() const noexcept { return touched_; }

 private:
    // Of elements of a buffer.
    struct Use {
        std::int64_t writer = -1;            // the step that wrote them last
        std::vector<std::uint32_t> readers;  // those that have read them since
        Use from(std::uint64_t /*count*/) const { return *this; }
    };
    IntervalMap<Use>& uses_of(const Chunk& chunk);

    std::vector<IntervalMap<Use>> uses_;  // by Buffer
    std::int64_t step_ = -1;              // the present one, or the last
    std::vector<std::uint32_t> waits_;    // of the present one
    std::uint64_t touched_ = 0;
    std::vector<Chunk> read_now_, written_now_;
};

}  // namespace tutti::schedule
