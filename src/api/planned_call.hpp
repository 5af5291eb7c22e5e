// PlannedCall: what a Plan (tutti/plan.hpp) runs.
//
// Threads: one at a time.
#pragma once

#include <tutti/work.hpp>

namespace tutti::detail {

class PlannedCall {
 public:
    PlannedCall() = default;
    virtual ~PlannedCall() = default;
    PlannedCall(const PlannedCall&) = delete;
    PlannedCall& operator=(const PlannedCall&) = delete;
    virtual const char* name() const noexcept = 0;
    virtual void run() = 0;
    virtual Work start() = 0;
    /// Throws InvalidArgument unless the call receives one message.
    virtual int source_rank() const = 0;
};

}  // namespace tutti::detail
