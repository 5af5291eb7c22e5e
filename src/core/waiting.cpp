#include "core/waiting.hpp"

#include "core/assert.hpp"

#include <sched.h>

#include <algorithm>

namespace tutti {

using settings::Wait;

namespace {

// A longer turn is no computation's slice: the process was stopped, say.
constexpr std::chrono::milliseconds longest_turn{50};

}  // namespace

void Waiting::choose(Wait wanted, int ranks, int cores, int yields) {
    TUTTI_ASSERT(ranks >= 1 && cores >= 1 && yields >= 0);
    learns_ = wanted == Wait::automatic;
    looks_ = wanted == Wait::spin ? looks_of_spin : learns_ && ranks <= cores ? looks_of_own_core : 0;
    const int further = (ranks - 1) / cores;  // of a core
    lost_turn_ = lost_turn + further * turn_of_rank;
    wake_ = (1 + further) * wake;
    yields_ = wanted == Wait::sleep ? 0 : yields;
    rest(false);
}

void Waiting::choose_beside(Wait wanted, bool shares, int yields) {
    TUTTI_ASSERT(yields >= 0);
    learns_ = wanted != Wait::sleep;
    yields_ = learns_ ? yields : 0;
    lost_turn_ = lost_turn / 5;  // it waits as ranks do, but no rank waits for it yet: sleep costs little
    rest(shares);
}

void Waiting::rest(bool resting) noexcept {
    looks_now_.store(resting ? 0 : looks_, std::memory_order_relaxed);
    turns_now_.store(resting ? 0 : looks_ + yields_, std::memory_order_relaxed);
}

Instant Waiting::yield(Instant before) noexcept {
    ::sched_yield();
    const Instant after = Clock::now();
    took_turn(before, after);
    return after;
}

void Waiting::took_turn(Instant before, Instant after) noexcept {
    if (!learns_ || after - before < lost_turn_) return;
    const Instant::rep took = std::min<Instant::duration>(after - before, longest_turn).count();
    TUTTI_ASSERT(took >= 0);
    if (lesson * calm_.exchange(0, std::memory_order_relaxed) > took) return;
    // A turn lost again after no more time than the last rest: nothing has changed.
    const Instant::rep last = rest_.load(std::memory_order_relaxed);
    const bool again = before.time_since_epoch().count() < rest_ends_.load(std::memory_order_relaxed) + last;
    const Instant::rep length = std::clamp(again ? 2 * last : 0, first_rest * took, longest_rest * took);
    TUTTI_ASSERT(length >= 0);
    rest_.store(length, std::memory_order_relaxed);
    rest_ends_.store(after.time_since_epoch().count() + length, std::memory_order_relaxed);
    rest(true);
}

void Waiting::slept(Instant now) noexcept {
    if (!learns_ || !sleeps_at_once()) return;
    if (now.time_since_epoch().count() >= rest_ends_.load(std::memory_order_relaxed)) rest(false);
}

void Waiting::Looks::look_at_clock() noexcept {
    const Instant now = Clock::now();
    if (last_ == Instant{})
        waiting_->spared();
    else
        waiting_->took_turn(last_, now);
    last_ = now;
}

}  // namespace tutti
