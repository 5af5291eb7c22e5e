// Spin: whether looking again and again for a short while is better than to sleep at once. Going to sleep and being
// woken costs more than a quick answer takes; but where the cores are busy, looking keeps others from working.
//
// Threads: one at a time.
#pragma once

#include <algorithm>

namespace tutti::store {

/// Whether this process may use more than one core.
bool cores_to_spare();

class Spin {
 public:
    /// Whether to look this time. After disappointments not for a while, then longer.
    bool worth_it() {
        if (resting_ == 0) return true;
        --resting_;
        return false;
    }
    /// What came of looking.
    void note(bool came_in_time) {
        if (came_in_time) {
            patience_ = std::min(patience_ + 1, patience_max);
            rest_ = rest_min;
        } else if (--patience_ < 0) {
            patience_ = 0;
            resting_ = rest_;
            rest_ = std::min(rest_ * 2, rest_max);
        }
    }

 private:
    static constexpr int patience_max = 3;
    static constexpr int rest_min = 16;
    static constexpr int rest_max = 256;
    int patience_ = patience_max;
    int rest_ = rest_min;
    int resting_ = 0;
};

}  // namespace tutti::store
