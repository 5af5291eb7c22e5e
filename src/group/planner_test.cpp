#include "group/planner.hpp"

#include "group/expected_blocks.hpp"

#include <gtest/gtest.h>

namespace tutti::detail {
namespace {

algorithm::Layout hosts_of_one_rank(int size) {
    algorithm::Layout layout;
    for (int rank = 0; rank < size; ++rank) layout.host_of.push_back(rank);
    layout.machines = size;
    return layout;
}

algorithm::Request all_reduce_request(std::uint64_t count) {
    return {.collective = Collective::all_reduce, .element_bytes = 4, .count = count};
}

TEST(Planner, keeps_a_schedule_for_the_next_call_of_the_same_shape) {
    Planner planner(hosts_of_one_rank(4), 0, false);
    const auto first = planner.plan(all_reduce_request(1000));
    EXPECT_NE(planner.plan(all_reduce_request(1001)), first);
    EXPECT_EQ(planner.plan(all_reduce_request(1000)), first);
}

TEST(Planner, forgets_the_schedule_that_was_used_longest_ago) {
    Planner planner(hosts_of_one_rank(2), 0, false);
    const auto kept = planner.plan(all_reduce_request(1));
    const auto forgotten = planner.plan(all_reduce_request(2));
    planner.plan(all_reduce_request(1));
    for (std::uint64_t more = 1; more < Planner::schedules_max; ++more) planner.plan(all_reduce_request(2 + more));
    EXPECT_EQ(planner.plan(all_reduce_request(1)), kept);
    EXPECT_NE(planner.plan(all_reduce_request(2)), forgotten);
}

TEST(Planner, takes_names_from_the_tuning_until_it_is_told_another_one) {
    algorithm::Layout layout = hosts_of_one_rank(4);
    layout.tuning.named = "all_reduce=ring,broadcast=chain";
    Planner planner(layout, 0, false);
    EXPECT_EQ(planner.named(Collective::all_reduce), "ring");
    EXPECT_EQ(planner.named(Collective::broadcast), "chain");
    EXPECT_FALSE(planner.named(Collective::barrier));
    planner.serve_with(Collective::all_reduce, std::nullopt);
    EXPECT_FALSE(planner.named(Collective::all_reduce));
}

TEST(Planner, plans_an_all_to_all_of_uneven_blocks_without_passing_them_on) {
    Planner planner(hosts_of_one_rank(2), 0, false);
    const std::vector<std::uint64_t> counts{1, 2};
    engine::CollectiveCall call{.collective = Collective::all_to_all, .dtype = DType::int32};
    call.set_blocks(counts, counts);
    const auto straight = planner.plan(call, {});
    planner.serve_with(Collective::all_to_all, "bruck");
    EXPECT_EQ(planner.plan(call, {}), straight);
}

TEST(Planner, passes_blocks_on_as_the_name_says_or_else_as_the_table_does) {
    Planner planner(hosts_of_one_rank(8), 0, false);
    planner.serve_with(Collective::all_to_all, "bruck");
    EXPECT_EQ(planner.largest_relayed(), ExpectedBlocks::most_room);
    planner.serve_with(Collective::all_to_all, "pairwise");
    EXPECT_EQ(planner.largest_relayed(), 0U);
    planner.serve_with(Collective::all_to_all, std::nullopt);
    const std::uint64_t by_table = planner.largest_relayed();
    EXPECT_GT(by_table, 0U) << "short blocks of eight ranks over TCP";
    planner.serve_with(Collective::all_to_all, "^bruck");
    EXPECT_EQ(planner.largest_relayed(), 0U);
}

}  // namespace
}  // namespace tutti::detail
