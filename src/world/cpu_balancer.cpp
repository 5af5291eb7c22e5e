#include "world/cpu_balancer.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <mutex>

namespace tutti::detail {
namespace {

constexpr int notes_before_look = 256;  // a look reads the clock

}  // namespace

void CpuBalancer::observe() {
    TUTTI_ASSERT(arena_ != nullptr);
    here_ = ::sched_getcpu();
    auto& said = arena_->control(local_rank_).cpu_and_one;
    const auto mine = static_cast<std::uint32_t>(here_ + 1);
    if (said.load(std::memory_order_relaxed) != mine) said.store(mine, std::memory_order_relaxed);
    if (moves_ == Moves::no || ++notes_ < notes_before_look) return;
    notes_ = 0;
    if (const Instant now = Clock::now(); now >= next_look_) {
        move();
        next_look_ = now + pause_;
    }
}

void CpuBalancer::move() {
    TUTTI_ASSERT(here_ >= -1);
    const int there = better_cpu();
    if (there == here_) {
        pause_ = shortest;
        return;
    }
    pause_ = std::min(2 * pause_, longest);
    TUTTI_ASSERT(there >= 0 && there < CPU_SETSIZE && pause_ <= longest);
    cpu_set_t allowed, only;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    CPU_ZERO(&only);
    CPU_SET(static_cast<std::size_t>(there), &only);
    if (::sched_setaffinity(0, sizeof only, &only) != 0) return;
    ::sched_setaffinity(0, sizeof allowed, &allowed);
    static std::once_flag said;
    std::call_once(said, [&] {
        TUTTI_INFO("a thread that waits with other ranks on CPU {} moves to CPU {} (TUTTI_SPREAD=0: none does)", here_,
                   there);
    });
}

// An allowed one with at least two ranks less than this one, if this is the first rank here; otherwise this one. One
// rank that moves after the other makes the CPUs even.
int CpuBalancer::better_cpu() const {
    cpu_set_t allowed;
    if (here_ < 0 || here_ >= CPU_SETSIZE || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return here_;
    std::array<int, CPU_SETSIZE> ranks_on{};
    for (int rank = 0; rank < arena_->layout().ranks; ++rank) {
        const int cpu = cpu_of(rank);
        if (cpu < 0 || cpu >= CPU_SETSIZE) continue;
        TUTTI_ASSERT(ranks_on[static_cast<std::size_t>(cpu)] < arena_->layout().ranks);
        if (cpu == here_ && rank < local_rank_) return here_;
        ++ranks_on[static_cast<std::size_t>(cpu)];
    }
    const auto ranks_at = [&](int cpu) { return ranks_on[static_cast<std::size_t>(cpu)]; };
    int best = here_;
    for (int i = 1; i < CPU_SETSIZE; ++i) {  // each begins with another one
        const int cpu = (here_ + i) % CPU_SETSIZE;
        if (CPU_ISSET(static_cast<std::size_t>(cpu), &allowed) && ranks_at(cpu) < ranks_at(best)) best = cpu;
    }
    TUTTI_ASSERT(best >= 0 && best < CPU_SETSIZE && ranks_at(best) <= ranks_at(here_));
    return ranks_at(best) + 2 <= ranks_at(here_) ? best : here_;
}

}  // namespace tutti::detail
