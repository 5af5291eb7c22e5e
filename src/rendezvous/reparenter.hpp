// Reparenter: when a rank looks for a new parent, and which candidates it tries: one at a time, in the given order; if
// none answers, all of them again after a pause.
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"

#include <chrono>
#include <optional>
#include <set>
#include <span>

namespace tutti::rendezvous {

class Reparenter {
 public:
    /// Ranks mostly leave together: a rank whose parent leaves waits a little before it looks for a new one, which
    /// might leave as well.
    static constexpr std::chrono::milliseconds delay{20};
    static constexpr std::chrono::milliseconds attempt_limit{300};
    static constexpr std::chrono::milliseconds pause{300};

    /// The lifeline to the parent has ended, or will: look for a new parent from `when` on.
    void request(Instant when) { due_ = when; }
    /// Whether next() should be called.
    bool is_due(Instant now) const { return !trying_ && due_ && now >= *due_; }
    /// When is_due() becomes true; nothing: not without another event.
    std::optional<Instant> due() const { return trying_ ? std::nullopt : due_; }
    /// The candidate to try now; nothing: all have been tried, and a pause begins.
    std::optional<int> next(std::span<const int> candidates, Instant now);
    /// The candidate under trial has not answered.
    void failed() { trying_ = false; }
    /// No candidate can be tried for a while: begins a pause.
    void failed_for_all(Instant now);
    /// There is a new parent, or none is needed.
    void done();

 private:
    std::optional<Instant> due_;
    std::set<int> tried_;
    bool trying_ = false;
};

}  // namespace tutti::rendezvous
