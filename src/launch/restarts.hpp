// Restarts: counts down --max-restarts where other processes take the places of ranks that die. One restart repairs
// all ranks that die before the group is whole again, as one of torchrun's does: ranks that fail because another one
// died cost nothing. The death of a process that has not joined yet costs one each time, so that a program that fails
// at once is not started for ever.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"

namespace tutti::launch {

class Restarts {
 public:
    explicit Restarts(int left) : left_(left) { TUTTI_ASSERT(left >= 0); }

    /// A rank has died. True: another process may take its place.
    bool rank_died() {
        if (holes_ == 0 && !take()) return false;
        ++holes_;
        return true;
    }
    /// A process that had not joined has died. True: another one may be started in its place.
    bool newcomer_died() { return take(); }
    /// The ranks are a group again.
    void is_whole() { holes_ = 0; }

    int left() const noexcept { return left_; }
    /// Ranks that have died since the group was whole.
    int holes() const noexcept { return holes_; }
    /// Whether all ranks may be started again: a restart that repairs ranks that have died counts for all.
    bool may_start_all() const noexcept { return left_ > 0 || holes_ > 0; }
    /// Restarts that have repaired something; that of ranks which are dead still is not among them.
    int repairs() const noexcept { return taken_ - (holes_ > 0 ? 1 : 0); }

 private:
    bool take() {
        if (left_ == 0) return false;
        --left_;
        ++taken_;
        return true;
    }
    int left_, taken_ = 0, holes_ = 0;
};

}  // namespace tutti::launch
