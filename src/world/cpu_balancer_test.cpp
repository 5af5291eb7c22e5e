#include "world/cpu_balancer.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace {
int affinities_set = 0;
}

// The C library's, counted.
extern "C" int sched_setaffinity(pid_t thread, std::size_t bytes, const cpu_set_t* cpus) noexcept {
    ++affinities_set;
    return static_cast<int>(::syscall(SYS_sched_setaffinity, thread, bytes, cpus));
}

namespace tutti::detail {
namespace {

cpu_set_t allowed_cpus() {
    cpu_set_t set;
    EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

std::vector<int> list_of(const cpu_set_t& set) {
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
    }
    return cpus;
}

class Spreads : public ::testing::Test {
 protected:
    static constexpr int ranks = 4;
    std::shared_ptr<transport::Arena> arena_ = transport::Arena::create_private({.ranks = ranks});

    void put(int rank, int cpu) { arena_->control(rank).cpu_and_one.store(static_cast<std::uint32_t>(cpu + 1)); }
    int noted(int rank) const { return static_cast<int>(arena_->control(rank).cpu_and_one.load()) - 1; }
    // A thread as rank `me`, which notes while the others are where it has just been; the CPUs on which it was. It
    // looks around several times, and on a busy machine, where it may not run for long, until it was on as many as
    // expected.
    std::vector<int> stay_among(int me, int others_here, const std::vector<int>& allowed, std::size_t expected = 1,
                                CpuBalancer::Moves moves = CpuBalancer::Moves::yes) {
        std::vector<int> seen;
        affinities_set = 0;
        std::thread([&] {
            cpu_set_t mine;
            CPU_ZERO(&mine);
            for (const int cpu : allowed) CPU_SET(static_cast<std::size_t>(cpu), &mine);
            ASSERT_EQ(::sched_setaffinity(0, sizeof mine, &mine), 0);
            CpuBalancer balancer(arena_, me, moves);
            const int first = ::sched_getcpu();
            for (int rank = 0, left = others_here; rank < ranks; ++rank) {
                if (rank != me && left-- > 0) put(rank, first);
            }
            seen.push_back(first);
            const Instant enough = Clock::now() + 2 * CpuBalancer::shortest, end = enough + std::chrono::seconds(5);
            constexpr int notes_enough = 2000;
            for (int notes = 0; Clock::now() < end; ++notes) {
                if (notes >= notes_enough && Clock::now() >= enough && seen.size() >= expected) break;
                balancer.observe();
                if (noted(me) != seen.back()) seen.push_back(noted(me));
            }
            EXPECT_EQ(list_of(allowed_cpus()), allowed) << "it may run where it could before";
        }).join();
        return seen;
    }
};

TEST_F(Spreads, say_where_they_are_and_know_who_is_here) {
    CpuBalancer balancer(arena_, 1, CpuBalancer::Moves::no);
    EXPECT_FALSE(balancer.is_here(0)) << "nothing is known of it";
    balancer.observe();
    const int here = noted(1);
    ASSERT_GE(here, 0);
    put(0, here);
    put(2, here + 1);
    EXPECT_TRUE(balancer.is_here(0));
    EXPECT_FALSE(balancer.is_here(2));
    EXPECT_FALSE(balancer.is_here(3));
}

TEST_F(Spreads, move_from_a_cpu_with_two_more_than_another) {
    const std::vector<int> all = list_of(allowed_cpus());
    const auto seen = stay_among(0, 3, all, std::min<std::size_t>(all.size(), 2));
    if (all.size() == 1)
        EXPECT_EQ(seen.size(), 1U) << "there is nowhere to go";
    else
        EXPECT_GE(seen.size(), 2U);
}

TEST_F(Spreads, leave_the_thread_of_the_caller_alone_unless_they_are_asked_to_move_it) {
    const std::vector<int> all = list_of(allowed_cpus());
    stay_among(0, 3, all, 1, CpuBalancer::Moves::no);
    EXPECT_EQ(affinities_set, 1) << "by this test";
    if (all.size() == 1) return;
    stay_among(0, 3, all, 2, CpuBalancer::Moves::yes);
    EXPECT_GT(affinities_set, 2) << "by this test, and by the move and its end";
}

TEST_F(Spreads, keep_to_the_cpus_that_their_thread_is_allowed_to_use) {
    const std::vector<int> one{list_of(allowed_cpus()).front()};
    EXPECT_EQ(stay_among(0, 3, one), one);
}

}  // namespace
}  // namespace tutti::detail
