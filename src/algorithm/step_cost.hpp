// Step costs: what one step of a schedule costs, by the numbers and rates of the formulas (cost.hpp). For all plays of
// schedules step by step: `tutti explain`'s (walk.hpp) and `tutti simulate`'s (src/simulate).
//
// Pure functions.
#pragma once

#include "algorithm/cost.hpp"
#include "algorithm/request.hpp"

#include <cstdint>

namespace tutti::algorithm {

class StepCosts {
 public:
    /// `held_bytes`: of one rank's buffers and scratch. The layout and the costs outlive this object.
    StepCosts(const Layout& layout, const CostModel& costs, double held_bytes);

    struct Message {
        double send_us = 0, receive_us = 0, latency_us = 0;  ///< as of MessageCosts
        double send_bytes_us = 0;                            ///< the sender's core, for the bytes
        double receive_bytes_us = 0;                         ///< the receiver's core, for the bytes
        bool pulled = false;  ///< the receiver copies the bytes from where they lie, and the sender waits for that
    };
    /// `near`: between two ranks that share memory.
    Message message(double bytes, bool near) const;

    /// The microseconds for which a step that is no message keeps its rank's core; of a receive_combine, those for
    /// which it combines.
    double work_us(const schedule::Schedule& schedule, const schedule::Step& step, std::uint64_t element_bytes) const;

    bool near(Rank a, Rank b) const {
        TUTTI_ASSERT(a >= 0 && a < layout_.size() && b >= 0 && b < layout_.size());
        return layout_.shared_memory &&
               layout_.host_of[static_cast<std::size_t>(a)] == layout_.host_of[static_cast<std::size_t>(b)];
    }
    const Rates& rates() const noexcept { return rates_; }

 private:
    const Layout& layout_;
    const CostModel& costs_;
    Rates rates_;
    double kernel_byte_us_;
};

/// Bytes of the chunks that a step reads.
double operand_bytes(const schedule::Schedule& schedule, const schedule::Step& step, std::uint64_t element_bytes);
/// Bytes of one rank's buffers and scratch.
double held_bytes(const schedule::Schedule& schedule, std::uint64_t element_bytes);

}  // namespace tutti::algorithm
