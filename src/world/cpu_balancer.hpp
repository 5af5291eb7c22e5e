// CpuBalancer: the ranks of a host that has fewer CPUs, and the CPU on which each of them runs.
//
// A rank that waits either looks again, which helps while the ranks that it waits for run elsewhere, or yields, which
// helps if one of them needs this CPU. And yielding only helps if the ranks are spread evenly: with three on one CPU
// and one on the other each round takes three turns instead of two, and the kernel, which balances a few times a second
// at best, may leave it so for the whole of a short job. So a rank on a CPU with two more than another one moves there,
// unless TUTTI_SPREAD is 0: it restricts itself to that CPU and takes the restriction back at once. CPUs that the
// caller's thread is not allowed to use stay forbidden; it does not use those that its cpuset gains later, as after any
// sched_setaffinity(2).
//
// Threads: one at a time; the values that others read are atomic.
#pragma once

#include "core/deadline.hpp"
#include "transport/shm/arena.hpp"

#include <chrono>
#include <memory>
#include <utility>

namespace tutti::detail {

class CpuBalancer {
 public:
    /// Whether observe() may move the calling thread, which belongs to the caller: TUTTI_SPREAD.
    enum class Moves { no, yes };
    CpuBalancer(std::shared_ptr<transport::Arena> arena, int local_rank, Moves moves)
        : arena_(std::move(arena)), local_rank_(local_rank), moves_(moves) {}

    /// The calling thread waits: notes its CPU, and with Moves::yes moves it if that was a bad place for a while.
    void observe();
    /// As far as is known, the other rank waits, or would go on, on the CPU of the last observe().
    bool is_here(int local_rank) const noexcept { return cpu_of(local_rank) == here_; }

    /// From one look at the others to the next, at least. Moves that do not last make it longer.
    static constexpr std::chrono::milliseconds shortest{5}, longest{1000};

 private:
    /// -1: not known.
    int cpu_of(int local_rank) const noexcept {
        return static_cast<int>(arena_->control(local_rank).cpu_and_one.load(std::memory_order_relaxed)) - 1;
    }
    void move();
    int better_cpu() const;

    std::shared_ptr<transport::Arena> arena_;
    int local_rank_;
    Moves moves_;
    int here_ = -2;  // nowhere, yet
    int notes_ = 0;
    std::chrono::milliseconds pause_ = shortest;
    Instant next_look_{};
};

}  // namespace tutti::detail
