#include "core/rank_list.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tutti {
namespace {

TEST(RankList, names_few_ranks_one_by_one) {
    EXPECT_EQ(rank_list(std::vector{3}), "rank 3");
    EXPECT_EQ(rank_list(std::vector{0, 1, 2}), "ranks 0, 1, 2");
    EXPECT_EQ(rank_list(std::vector{5, 2}), "ranks 5, 2");
}

TEST(RankList, names_ranks_that_follow_one_another_by_the_first_and_the_last) {
    std::vector<int> ranks(1000);
    std::iota(ranks.begin(), ranks.end(), 0);
    EXPECT_EQ(rank_list(ranks), "ranks 0 to 999");
    ranks.erase(ranks.begin() + 500);
    EXPECT_EQ(rank_list(ranks), "ranks 0 to 499, 501 to 999");
    EXPECT_EQ(rank_list(std::vector{7, 1, 2, 3, 4, 9}), "ranks 7, 1 to 4, 9");
}

TEST(RankList, says_how_many_it_leaves_out) {
    std::vector<int> odd;
    for (int rank = 1; rank < 100; rank += 2) odd.push_back(rank);
    EXPECT_EQ(rank_list(odd), "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 and 34 more");
}

}  // namespace
}  // namespace tutti
