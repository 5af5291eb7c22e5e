// Waiting: how a rank waits (polls, yields its core with sched_yield(2), or sleeps), and how it learns from its waits.
// In names, "look" means one poll, and a "turn" is one poll, yield or sleep.
//
// Polling is quickest while the ranks that this rank waits for have cores of their own. Yielding is quickest while only
// ranks share this core: the next to run may be the awaited rank. Beside a computation, a rank that yields runs again
// only after the computation's whole time slice; a rank that polls uses up its own slice; a rank that sleeps runs soon
// after its wakeup. So after each slow yield (a lost turn) the rank compares the yield's duration with the cost of
// sleeping in each wait since the last lost turn. If the yield took at least `lesson` times as long, a rest period
// begins: the rank sleeps at once in every wait, without polling or yielding. Then it tries yielding again. The period
// is longer after a longer yield, and if the last period ended recently.
// Threads: any; of two threads that learn at the same time, each may overlook the other's result.
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

    /// Polls before the first yield: if every rank of the machine has a core of its own, and with TUTTI_WAIT=spin.
    static constexpr int looks_of_own_core = 4000, looks_of_spin = 1'000'000;
    /// A turn is lost, since a computation had the core, if a yield or a few polls took this long. Each further rank on
    /// the core adds turn_of_rank, since it may have run meanwhile: some 10 us if it only waits, more if it copies or
    /// combines.
    static constexpr std::chrono::microseconds lost_turn{1000}, turn_of_rank{500};
    /// The cost of a wakeup per rank on a core: the kernel wakes them one after the other.
    static constexpr std::chrono::microseconds wake{8};
    /// A lost turn starts a rest period if it took this many times as long as sleeping in each wait since the last lost
    /// turn.
    static constexpr int lesson = 2;
    /// Minimum and maximum length of a rest period, as multiples of the lost turn.
    static constexpr int first_rest = 4, longest_rest = 100;

    /// Configures the waits of one of `ranks` ranks on a machine with `cores` cores; to be called before any wait.
    /// `yields`: the number of yields before it sleeps.
    void choose(settings::Wait wanted, int ranks, int cores, int yields);
    /// As choose(), for a thread that works beside its own process's computation: it never polls, and it learns unless
    /// it must always sleep. `shares`: both have only one core, so the thread sleeps at first.
    void choose_beside(settings::Wait wanted, bool shares, int yields);

    /// Whether choose() found a core for every rank, so that polling helps.
    bool has_own_core() const noexcept { return looks_ > 0; }
    /// Whether this rank adapts its way of waiting.
    bool learns() const noexcept { return learns_; }
    /// Whether this rank now sleeps without polling or yielding first.
    bool sleeps_at_once() const noexcept { return turns_now_.load(std::memory_order_relaxed) == 0; }
    /// The next turn after `idle` turns without success, at least 1.
    Turn turn(int idle) const noexcept {
        TUTTI_ASSERT(idle >= 1);
        if (idle > turns_now_.load(std::memory_order_relaxed)) return Turn::sleep;
        return idle <= looks_now_.load(std::memory_order_relaxed) ? Turn::look : Turn::yield;
    }
    /// Yields the core. `before`: the present time, possibly slightly old; returns the time afterwards.
    Instant yield(Instant before) noexcept;
    /// To be called after each sleep.
    void slept(Instant now) noexcept;
    /// To be called when a wait ends, or is about to end, without a sleep.
    void spared() noexcept {
        calm_.store(calm_.load(std::memory_order_relaxed) + wake_.count(), std::memory_order_relaxed);
    }
    /// Learns from a turn that lasted from `before` to `after`.
    void took_turn(Instant before, Instant after) noexcept;

    /// A series of polls, as many as currently help. It reads the clock every 64 polls.
    class Looks {
     public:
        explicit Looks(Waiting& waiting) noexcept
            : waiting_(&waiting), left_(waiting.looks_now_.load(std::memory_order_relaxed)) {}
        /// Pauses before the next poll; false: the number of polls is used up.
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
    std::atomic<int> looks_now_{0}, turns_now_{0};  // turns: polls and yields
    std::atomic<Instant::rep> calm_{0};             // the cost of sleeping instead, since a turn was lost
    std::atomic<Instant::rep> rest_ends_{0}, rest_{0};
};

}  // namespace tutti
