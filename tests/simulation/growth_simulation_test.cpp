// Groups that take newcomers in, over a simulated store, network and clock (growth_world.hpp): all or none, the same
// sentence for all, one new group at most, nobody accused or left out without a cause, and an end of every wait; of a
// training (training.hpp) each step once, and one end for all. A seed decides all (seeds.hpp).
#include "simulation/growth_world.hpp"
#include "simulation/seeds.hpp"

#include <gtest/gtest.h>

namespace tutti::simulation {
namespace {

class SimulatedGrowth : public testing::TestWithParam<std::uint64_t> {};

TEST_P(SimulatedGrowth, keeps_every_promise) {
    constexpr std::uint64_t worlds = 3500;
    const Seeds seeds = fixed_seeds(GetParam(), worlds);
    int made = 0, deaths = 0, excluded = 0, told = 0, changed_again = 0, parted = 0;
    int trained = 0, admissions = 0, recoveries = 0, times_back = 0;
    for (std::uint64_t seed = seeds.first; seed < seeds.last; ++seed) {
        GrowthWorld world(seed);
        ASSERT_EQ(world.run(), "") << command_for(seed, "growth_simulation_test");
        made += world.made();
        deaths += world.deaths();
        excluded += world.excluded();
        told += world.told();
        changed_again += world.changed_again();
        parted += world.parted();
        trained += world.trained();
        admissions += world.admissions();
        recoveries += world.recoveries();
        times_back += world.times_back();
    }
    if (seeds.count() < worlds) return;
    // Enough happens, or this test shows nothing.
    EXPECT_GT(made, 5000);
    EXPECT_GT(deaths, 1000);
    EXPECT_GT(excluded, 200);
    EXPECT_GT(told, 5000);
    EXPECT_GT(changed_again, 400);
    EXPECT_GT(parted, 100);
    EXPECT_GT(trained, 2000);
    EXPECT_GT(admissions, 1000);
    EXPECT_GT(recoveries, 1000);
    EXPECT_GT(times_back, 200);
}

TEST(GrowthSimulation, keeps_every_promise_in_worlds_that_nobody_has_seen) {
    const Seeds seeds = fresh_seeds(5000);
    for (std::uint64_t seed = seeds.first; seed < seeds.last; ++seed)
        ASSERT_EQ(GrowthWorld(seed).run(), "") << command_for(seed, "growth_simulation_test");
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulatedGrowth, testing::Values(0, 1));

}  // namespace
}  // namespace tutti::simulation
