// Lifelines of whole worlds in one process, over a simulated network and clock: a death becomes known to all that can
// be reached, nobody is accused who has done nothing, the tree never loses a rank that lives, and a rank that waits for
// it learns when all have its news. A seed decides all (seeds.hpp).
#include "simulation/lifelines_world.hpp"
#include "simulation/seeds.hpp"

#include <gtest/gtest.h>

#include <map>

namespace tutti::simulation {
namespace {

class SimulatedLifelines : public testing::TestWithParam<std::uint64_t> {};

TEST_P(SimulatedLifelines, keep_every_promise) {
    constexpr std::uint64_t worlds = 2500;
    const Seeds seeds = fixed_seeds(GetParam(), worlds);
    std::map<Strike, int> worlds_with;
    int deaths_known = 0, reparented = 0;
    for (std::uint64_t seed = seeds.first; seed < seeds.last; ++seed) {
        LifelinesWorld world(seed);
        ASSERT_EQ(world.run(), "") << command_for(seed, "lifelines_simulation_test");
        for (const Strike strike :
             {Strike::leave, Strike::stop, Strike::death, Strike::host_loss, Strike::cut, Strike::news}) {
            if (world.has(strike)) ++worlds_with[strike];
        }
        if (world.death_is_known()) ++deaths_known;
        if (world.finds_new_parents()) ++reparented;
    }
    if (seeds.count() < worlds) return;
    // Enough happens, or this test shows nothing.
    for (const auto& [strike, count] : worlds_with) EXPECT_GT(count, 100) << "strike " << static_cast<int>(strike);
    EXPECT_EQ(worlds_with.size(), 6U);
    EXPECT_GT(deaths_known, 500);
    EXPECT_GT(reparented, 200);
}

TEST(LifelinesSimulation, keeps_every_promise_in_worlds_that_nobody_has_seen) {
    const Seeds seeds = fresh_seeds(5000);
    for (std::uint64_t seed = seeds.first; seed < seeds.last; ++seed)
        ASSERT_EQ(LifelinesWorld(seed).run(), "") << command_for(seed, "lifelines_simulation_test");
}

// That shows that the worlds above could break a promise.
TEST(LifelinesSimulation, break_promises_where_news_get_lost) {
    int lossy = 0, found = 0;
    for (std::uint64_t seed = 0; seed < 500; ++seed) {
        LifelinesWorld world(seed);
        world.lose_news();
        const bool wrong = !world.run().empty();
        if (!world.has_lost_any()) continue;
        ++lossy;
        if (wrong) ++found;
    }
    EXPECT_GT(lossy, 200);
    EXPECT_GT(found, lossy / 4);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulatedLifelines, testing::Values(0, 1));

}  // namespace
}  // namespace tutti::simulation
