// Mailbox, engine and what is heard of ranks, between ranks of one process over a simulated network and clock. Whatever
// the network does, an operation that completes has its promised result; without a fault all complete; with one, every
// rank that is left completes or fails, soon and with the right culprit. A seed decides all (seeds.hpp).
#include "simulation/job.hpp"
#include "simulation/seeds.hpp"

#include <gtest/gtest.h>

#include <map>

namespace tutti::simulation {
namespace {

class Simulated : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Simulated, jobs_keep_every_promise) {
    constexpr std::uint64_t jobs = 2500;
    const Seeds seeds = fixed_seeds(GetParam(), jobs);
    std::map<Fault, int> jobs_with, jobs_that_failed;
    for (std::uint64_t seed = seeds.first; seed < seeds.last; ++seed) {
        Job job(seed);
        ASSERT_EQ(job.run(), "") << command_for(seed, "simulation_test");
        ++jobs_with[job.fault()];
        if (job.failed() > 0) ++jobs_that_failed[job.fault()];
    }
    if (seeds.count() < jobs) return;
    // The faults come while something is under way, or this test shows nothing.
    EXPECT_EQ(jobs_that_failed[Fault::none], 0);
    EXPECT_EQ(jobs_that_failed[Fault::mismatch], jobs_with[Fault::mismatch]);
    EXPECT_EQ(jobs_that_failed[Fault::surplus], jobs_with[Fault::surplus]);
    for (const Fault fault : {Fault::death, Fault::cut, Fault::damage})
        EXPECT_GT(jobs_that_failed[fault], jobs_with[fault] / 10) << "fault " << static_cast<int>(fault);
}

TEST(Simulation, keeps_every_promise_in_jobs_that_nobody_has_seen) {
    const Seeds seeds = fresh_seeds(5000);
    for (std::uint64_t seed = seeds.first; seed < seeds.last; ++seed)
        ASSERT_EQ(Job(seed).run(), "") << command_for(seed, "simulation_test");
}

// That shows that the jobs above could fail.
TEST(Simulation, finds_that_a_network_loses_bytes) {
    int lossy = 0, found = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        Job job(seed);
        if (job.fault() != Fault::none) continue;
        job.network().lose_bytes();
        const std::string wrong = job.run();
        if (job.network().lost() == 0) {
            EXPECT_EQ(wrong, "") << "seed " << seed;
            continue;
        }
        ++lossy;
        if (!wrong.empty()) ++found;
    }
    EXPECT_GT(lossy, 50);
    EXPECT_GE(found, lossy * 9 / 10);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Simulated, testing::Values(0, 1));

}  // namespace
}  // namespace tutti::simulation
