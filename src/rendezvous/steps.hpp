// Steps: which steps of a training the ranks of a group that loses and gains ranks have completed (tutti::resilient).
//
// A boundary lies before each step and behind the last: all ranks pass it together, or some of them fail there. So the
// steps that two ranks have completed differ by one at most, and the copy that a rank took when it last passed a
// boundary is the older of the two states: the ranks of the next group go back to that.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"
#include "rendezvous/store_talk.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace tutti::rendezvous {

/// What each rank of a new group says to the others.
struct StepReport {
    std::int64_t completed = -1;  ///< steps; -1: the rank has no state
    std::int64_t failures = 0;    ///< in a row
    std::int64_t max_size = 0;    ///< of the group, as this rank knows it
};

struct StepAgreement {
    std::int64_t completed = -1;  ///< all take the state behind so many steps
    std::int64_t most = -1;       ///< which some rank has completed
    int source = -1;              ///< the lowest rank that has a state; -1: none
    bool adopts = false;          ///< some rank has none
    std::int64_t failures = 0;
    std::int64_t max_size = 0;
};
/// `reports`: of all ranks of the group, by rank; equal on all.
StepAgreement agree_on_steps(std::span<const StepReport> reports);

/// Whether the training ends for all at a boundary that is the last one, or at which this rank has not heard of all
/// ranks that they are here (`met`). `key`: of this boundary of this group, equal on all ranks. A rank that has passed
/// the last boundary does not come again, so the first that writes decides for all. False: some rank has not passed it.
StoreTalk<bool> agree_whether_over(std::string key, bool met);

/// Of one rank: the state that it has, and the copy of it.
class Steps {
 public:
    Steps(std::int64_t first, bool has_state) : completed_(first), has_state_(has_state) {}

    std::int64_t completed() const noexcept { return completed_; }
    bool has_state() const noexcept { return has_state_; }
    bool has_copy() const noexcept { return kept_ >= 0; }
    std::int64_t report() const noexcept { return has_state_ ? completed_ : -1; }

    /// At a boundary that all have passed. True: the caller copies the state; false: the copy is of this one.
    bool keep() {
        TUTTI_ASSERT(has_state_ && !is_dirty_);
        if (kept_ == completed_) return false;
        kept_ = completed_;
        return true;
    }
    void begin() {
        TUTTI_ASSERT(kept_ == completed_ && !is_dirty_);
        is_dirty_ = true;
    }
    void complete() {
        TUTTI_ASSERT(is_dirty_);
        is_dirty_ = false;
        ++completed_;
    }
    /// All ranks of a new group take the state behind `agreed` steps. True: the caller goes back to the copy.
    bool go_back_to(std::int64_t agreed) {
        if (!has_state_) return false;
        const bool goes_back = is_dirty_ || completed_ != agreed;
        TUTTI_ASSERT(!goes_back || kept_ == agreed);
        completed_ = agreed;
        is_dirty_ = false;
        return goes_back;
    }
    /// Another rank's state, behind `agreed` steps.
    void adopt(std::int64_t agreed) {
        TUTTI_ASSERT(!is_dirty_);
        completed_ = agreed;
        has_state_ = true;
    }

 private:
    std::int64_t completed_, kept_ = -1;  // kept_: the steps before the copy
    /// The state is that behind completed_ steps; is_dirty_: or that within a step after them.
    bool has_state_, is_dirty_ = false;
};

}  // namespace tutti::rendezvous
