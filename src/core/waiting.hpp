// Waiting: how a rank waits (polls, yields its core with sched_yield(2), or sleeps), and how it learns from its waits.
// A look is one poll.
//
// Polling is quickest while the ranks that this rank waits for have cores of their own. Yielding is quickest while only
// ranks share this core: the next to run may be the awaited rank. Beside a computation, a rank that yields runs again
// only after the computation's whole time slice; a rank that polls uses up its own slice; a rank that sleeps runs soon
// after its wakeup. So a yield that cost more time than sleeping would have cost in all waits before it is a lesson:
// for a while, the rest, this rank sleeps at once. The rest is longer after a longer yield, and where the last rest is
// recent. Then the rank yields again.
//
// Threads: any; two that learn at the same time may each overlook the other's lesson.
#pragma once

#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "core/pause.hpp"
#include "core/settings.hpp"

#include <atomic>
#include <chrono>

namespace tutti {

class Waiting {
 public:
    enum class Turn { look, yield, sleep };

    /// Before it yields: where every rank of the machine has a core of its own, and with TUTTI_WAIT=spin.
    static constexpr int looks_of_own_core = 4000, looks_of_spin = 1'000'000;
    /// A yield, or a few looks, that took this long lost their turn to a computation. Each further rank of the core may
    /// have had a turn of its own meanwhile: some 10 us where it waits, too, more where it copies or combines.
    static constexpr std::chrono::microseconds lost_turn{1000}, turn_of_rank{500};
    /// The cost of a wakeup, for each rank of a core: the kernel wakes them one after the other.
    static constexpr std::chrono::microseconds wake{8};
    /// A lost turn is a lesson if it takes this many times as long as sleeping would have.
    static constexpr int lesson = 2;
    /// After a lesson a rank sleeps at once for this many times the lost turn: at first, and at most.
    static constexpr int first_rest = 4, longest_rest = 100;

    /// To be called before any wait: for ranks of one machine. `yields`: how many before it sleeps.
    void choose(settings::Wait wanted, int ranks, int cores, int yields);
    /// As choose(), for a thread that works beside its own process's computation: it never looks, and learns unless it
    /// has to sleep at once anyway. `shares`: they have one core, so it sleeps to begin with.
    void choose_beside(settings::Wait wanted, bool shares, int yields);

    /// Whether, as far as the start could tell, every rank has a core of its own, so that looking helps.
    bool has_own_core() const noexcept { return looks_ > 0; }
    /// Whether this rank may choose otherwise than it was told to.
    bool learns() const noexcept { return learns_; }
    /// Whether neither looking nor yielding helps, now.
    bool sleeps_at_once() const noexcept { return turns_now_.load(std::memory_order_relaxed) == 0; }
    /// The next turn after so many in vain, 1 and more.
    Turn turn(int idle) const noexcept {
        TUTTI_ASSERT(idle >= 1);
        if (idle > turns_now_.load(std::memory_order_relaxed)) return Turn::sleep;
        return idle <= looks_now_.load(std::memory_order_relaxed) ? Turn::look : Turn::yield;
    }
    /// Offers the core to others. `before`: the time now, or just now; returns the time afterwards.
    Instant yield(Instant before) noexcept;
    /// To be called after each sleep.
    void slept(Instant now) noexcept;
    /// A wait is over, or soon will be, without a sleep.
    void spared() noexcept {
        calm_.store(calm_.load(std::memory_order_relaxed) + wake_.count(), std::memory_order_relaxed);
    }
    /// Learns from a turn that began and ended at these times.
    void took_turn(Instant before, Instant after) noexcept;

    /// A row of looks, as many as help now. It has a look at the clock now and then.
    class Looks {
     public:
        explicit Looks(Waiting& waiting) noexcept
            : waiting_(&waiting), left_(waiting.looks_now_.load(std::memory_order_relaxed)) {}
        /// Pauses before the next look; false: there have been enough.
        [[gnu::always_inline]] bool again() noexcept {
            if (left_ <= 0) return false;
            pause();
            return true;
        }
        [[gnu::always_inline]] void pause() noexcept {
            pause_cpu();
            if (--left_ % looks_of_clock == 0) [[unlikely]]
                look_at_clock();
        }

     private:
        static constexpr int looks_of_clock = 64;
        void look_at_clock() noexcept;

        Waiting* waiting_;
        int left_;
        Instant last_{};
    };

 private:
    void rest(bool resting) noexcept;

    bool learns_ = false;
    int looks_ = 0, yields_ = 0;
    Instant::duration lost_turn_ = lost_turn, wake_ = wake;
    std::atomic<int> looks_now_{0}, turns_now_{0};  // turns: looks and yields
    std::atomic<Instant::rep> calm_{0};             // the cost of sleeping instead, since a turn was lost
    std::atomic<Instant::rep> rest_ends_{0}, rest_{0};
};

}  // namespace tutti
