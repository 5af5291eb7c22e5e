// CpuBalancer: on a host with fewer CPUs than ranks, spreads the waiting ranks over the CPUs.
//
// A waiting rank either spins, which helps while the ranks for which it waits run on other CPUs, or yields, which helps
// if one of them needs this CPU. Yielding only helps if the ranks are spread evenly: with three ranks on one CPU and
// one on the other, each round takes three time slices instead of two, and the kernel, which balances a few times a
// second at best, may leave that so for the whole of a short job. So a rank moves from a CPU that has at least two
// ranks more than another one to that one, unless TUTTI_SPREAD is 0: it sets its affinity to the new CPU and restores
// it at once. It uses only CPUs in the affinity mask of the caller's thread; it does not use CPUs that its cpuset gains
// later, as after any sched_setaffinity(2).
//
// Threads: one at a time; values that other ranks read are atomic.
#pragma once

#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "transport/shm/arena.hpp"

#include <chrono>
#include <memory>
#include <utility>

namespace tutti::detail {

class CpuBalancer {
 public:
    /// Whether observe() may move the calling thread, which belongs to the user: from TUTTI_SPREAD.
    enum class Moves { no, yes };
    CpuBalancer(std::shared_ptr<transport::Arena> arena, int local_rank, Moves moves)
        : arena_(std::move(arena)), local_rank_(local_rank), moves_(moves) {
        TUTTI_ASSERT(arena_ != nullptr && local_rank_ >= 0 && local_rank_ < arena_->layout().ranks);
    }

    /// The calling thread waits: notes its CPU; with Moves::yes, moves the thread if that CPU was crowded for a while.
    void observe();
    /// Whether the rank is known to run, or wait, on the CPU of the last observe().
    bool is_here(int local_rank) const noexcept { return cpu_of(local_rank) == here_; }

    /// The range of the interval between two checks of the other ranks; moves that do not last make it longer.
    static constexpr std::chrono::milliseconds shortest{5}, longest{1000};

 private:
    /// -1: unknown.
    int cpu_of(int local_rank) const noexcept {
        return static_cast<int>(arena_->control(local_rank).cpu_and_one.load(std::memory_order_relaxed)) - 1;
    }
    void move();
    int better_cpu() const;

    std::shared_ptr<transport::Arena> arena_;
    int local_rank_;
    Moves moves_;
    int here_ = -2;  // no CPU yet
    int notes_ = 0;
    std::chrono::milliseconds pause_ = shortest;
    Instant next_look_{};
};

}  // namespace tutti::detail
