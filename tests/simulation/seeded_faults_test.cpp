// The simulations find the faults that are seeded into the library's code (seed_faults.py): each within so many seeds,
// and without a fault none in the same code.
#include "simulation/growth_world.hpp"
#include "simulation/job.hpp"
#include "simulation/lifelines_world.hpp"
#include "simulation/meetings_world.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace tutti::simulation {

// The copies read it; 0: none of them has a fault.
int seeded_fault = 0;

namespace {

struct Row {
    const char* name;
    std::string_view simulation;
};
constexpr Row rows[] = {
#include "rows.inc"
};

std::uint64_t most_seeds(std::string_view simulation) {
    return simulation == "jobs" ? 3000 : simulation == "meetings" ? 5000 : 20'000;
}

std::string run(std::string_view simulation, std::uint64_t seed) {
    if (simulation == "jobs") return Job(seed).run();
    if (simulation == "growth") return GrowthWorld(seed).run();
    return simulation == "worlds" ? LifelinesWorld(seed).run() : MeetingsWorld(seed).run();
}

std::string first_wrong(std::string_view simulation, std::uint64_t seeds) {
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        const std::string wrong = run(simulation, seed);
        if (!wrong.empty()) return wrong;
    }
    return {};
}

class SeededFaults : public testing::TestWithParam<int> {
 protected:
    void TearDown() override { seeded_fault = 0; }
};

TEST_P(SeededFaults, are_found) {
    const Row& row = rows[GetParam() - 1];
    seeded_fault = GetParam();
    const std::string wrong = first_wrong(row.simulation, most_seeds(row.simulation));
    EXPECT_NE(wrong, "") << row.name << ": the simulated " << row.simulation << " do not see it";
}

TEST(SeededFaultsTest, are_all_that_is_wrong) {
    EXPECT_EQ(first_wrong("jobs", 300), "");
    EXPECT_EQ(first_wrong("worlds", 2000), "");
    EXPECT_EQ(first_wrong("meetings", 2000), "");
    EXPECT_EQ(first_wrong("growth", 2000), "");
}

INSTANTIATE_TEST_SUITE_P(Rows, SeededFaults, testing::Range(1, static_cast<int>(std::size(rows)) + 1),
                         [](const auto& row) { return std::string(rows[row.param - 1].name); });

}  // namespace
}  // namespace tutti::simulation
