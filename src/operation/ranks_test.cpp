#include "operation/ranks.hpp"

#include <gtest/gtest.h>

namespace tutti::detail {
namespace {

using List = std::vector<int>;

TEST(Ranks, of_all_are_those_of_the_world) {
    const Ranks ranks({}, 2, 4);
    EXPECT_TRUE(ranks.are_all());
    EXPECT_EQ(ranks.size(), 4);
    EXPECT_EQ(ranks.rank(), 2);
    EXPECT_EQ(ranks.global(3), 3);
    EXPECT_EQ(ranks.rank_of(3), 3);
    EXPECT_EQ(ranks.rank_of(4), -1) << "nobody's";
    EXPECT_EQ(ranks.all(), (List{0, 1, 2, 3}));
    EXPECT_EQ(ranks.in_world(), List{});
}

TEST(Ranks, of_some_count_in_the_order_of_the_group) {
    const Ranks ranks({5, 1, 3}, 1, 8);
    EXPECT_FALSE(ranks.are_all());
    EXPECT_EQ(ranks.size(), 3);
    EXPECT_EQ(ranks.rank(), 1);
    EXPECT_EQ(ranks.own_global(), 1);
    EXPECT_EQ(ranks.global(0), 5);
    EXPECT_EQ(ranks.global(List{2, 0}), (List{3, 5}));
    EXPECT_EQ(ranks.rank_of(3), 2);
    EXPECT_EQ(ranks.rank_of(0), -1);
    EXPECT_EQ(ranks.ranks_of({0, 3, 5}), (List{2, 0}));
    EXPECT_EQ(ranks.all(), (List{5, 1, 3}));
}

TEST(Ranks, leave_any_source_what_it_is) {
    EXPECT_EQ(Ranks({5, 1}, 5, 8).global(-1), -1);
    EXPECT_EQ(Ranks({}, 0, 8).global(-1), -1);
}

}  // namespace
}  // namespace tutti::detail
