// Meetings over a simulated store and clock (meetings_world.hpp): all get the same cards, or the same sentence; nobody
// waits much beyond its time, and nobody gets a card of another job or attempt. A seed decides all (seeds.hpp).
#include "simulation/meetings_world.hpp"
#include "simulation/seeds.hpp"

#include <gtest/gtest.h>

#include <map>

namespace tutti::simulation {
namespace {

class SimulatedMeetings : public testing::TestWithParam<std::uint64_t> {};

TEST_P(SimulatedMeetings, keep_every_promise) {
    constexpr std::uint64_t worlds = 5000;
    const Seeds seeds = fixed_seeds(GetParam(), worlds);
    std::map<Trouble, int> worlds_with;
    int met = 0;
    for (std::uint64_t seed = seeds.first; seed < seeds.last; ++seed) {
        MeetingsWorld world(seed);
        ASSERT_EQ(world.run(), "") << command_for(seed, "meetings_simulation_test");
        ++worlds_with[world.trouble()];
        met += world.met();
    }
    if (seeds.count() < worlds) return;
    // Enough happens, or this test shows nothing.
    EXPECT_EQ(worlds_with.size(), static_cast<std::size_t>(troubles));
    for (const auto& [trouble, count] : worlds_with) EXPECT_GT(count, 100) << "trouble " << static_cast<int>(trouble);
    EXPECT_GT(met, 5000);
}

TEST(MeetingsSimulation, keeps_every_promise_in_worlds_that_nobody_has_seen) {
    const Seeds seeds = fresh_seeds(5000);
    for (std::uint64_t seed = seeds.first; seed < seeds.last; ++seed)
        ASSERT_EQ(MeetingsWorld(seed).run(), "") << command_for(seed, "meetings_simulation_test");
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulatedMeetings, testing::Values(0, 1));

}  // namespace
}  // namespace tutti::simulation
