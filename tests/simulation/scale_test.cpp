// How joining, making a group, verdicts and leaving grow with the number of ranks, in the simulations that scale_bench
// runs with up to 100,000.
#include "scale/simulated_lifelines.hpp"
#include "scale/simulated_meeting.hpp"

#include <gtest/gtest.h>

#include <bit>

namespace tutti::bench {
namespace {

constexpr int ranks_per_host = 8;

double log2_of(int ranks) {
    return static_cast<double>(std::bit_width(static_cast<unsigned>(ranks)) - 1);
}

TEST(Scale, a_rank_joins_with_as_many_requests_in_a_large_world_as_in_a_small_one) {
    for (const int ranks : {64, 256, 1024}) {
        const auto figures = SimulatedMeeting(SimulatedMeeting::Kind::world, ranks, ranks_per_host, {}).run();
        EXPECT_EQ(figures.met, ranks);
        EXPECT_EQ(figures.of_another, 4U) << ranks;
        EXPECT_LE(figures.of_rank_0, 6U) << ranks;
        EXPECT_LT(figures.outcome_bytes, 90.0 * ranks + 200) << "the cards of all";
        EXPECT_LT(figures.bytes_in, 1500.0 * ranks);
        EXPECT_LT(figures.bytes_out, (100.0 * ranks + 1500) * ranks) << "the cards of all go to all";
    }
}

// Rank 0 looks for the cards that have come when it has waited for 0.4 s: not for each of them each time.
TEST(Scale, rank_0_takes_the_cards_of_ranks_that_come_slowly_many_at_a_time) {
    const SimulatedMeeting::Costs slow{.within = std::chrono::milliseconds(2000)};
    const auto figures = SimulatedMeeting(SimulatedMeeting::Kind::world, 4096, ranks_per_host, slow).run();
    EXPECT_EQ(figures.met, 4096);
    EXPECT_LT(figures.of_rank_0, 400U);
}

// A store that answers 250,000 requests a second needs a tenth of a second for these, so that ranks wait that long.
TEST(Scale, members_that_make_a_group_do_not_ask_the_more_the_more_they_are) {
    for (const int ranks : {64, 256, 1024}) {
        const SimulatedMeeting::Costs slow{.message = std::chrono::microseconds(40)};
        const auto figures = SimulatedMeeting(SimulatedMeeting::Kind::group, ranks, ranks_per_host, slow).run();
        EXPECT_EQ(figures.met, ranks);
        EXPECT_LE(figures.of_another, 6U) << ranks;
    }
}

TEST(Scale, a_death_is_known_after_two_ways_through_the_tree) {
    for (const int ranks : {64, 256, 1024}) {
        SimulatedLifelines lines(ranks, ranks_per_host, {.message = std::chrono::microseconds(0)});
        const auto join = lines.join();
        EXPECT_LE(lines.most_lifelines(), log2_of(ranks));
        EXPECT_LE(join.messages, 5U * static_cast<unsigned>(ranks));
        EXPECT_LE(static_cast<double>(join.busiest), 6 * log2_of(ranks));
        const auto death = lines.kill(ranks - 1);
        EXPECT_EQ(lines.told(), ranks - 1);
        EXPECT_LE(lines.last_told_s(), 50e-6 * (2 * log2_of(ranks) + 1));
        EXPECT_LE(death.messages, 4U * static_cast<unsigned>(ranks));
        EXPECT_LE(static_cast<double>(death.busiest), 8 * log2_of(ranks) + 8);
    }
}

TEST(Scale, a_rank_passes_each_goodbye_on_once_and_fewer_where_all_leave_at_once) {
    for (const int ranks : {64, 256}) {
        for (const auto within : {std::chrono::milliseconds(0), std::chrono::milliseconds(1000)}) {
            SimulatedLifelines lines(ranks, ranks_per_host, {});
            lines.join();
            const auto leave = lines.leave(within);
            EXPECT_EQ(lines.present(), 0);
            const auto most = static_cast<unsigned>(within.count() == 0 ? 8 : ranks);
            EXPECT_LE(leave.messages, most * static_cast<unsigned>(ranks)) << within.count() << " ms";
        }
    }
}

}  // namespace
}  // namespace tutti::bench
