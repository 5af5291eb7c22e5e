#include "launch/restarts.hpp"

#include <gtest/gtest.h>

namespace tutti::launch {
namespace {

TEST(Restarts, one_repairs_all_that_die_before_the_group_is_whole) {
    Restarts restarts(2);
    EXPECT_TRUE(restarts.rank_died());
    EXPECT_TRUE(restarts.rank_died());
    EXPECT_EQ(restarts.left(), 1);
    EXPECT_EQ(restarts.holes(), 2);
    EXPECT_EQ(restarts.repairs(), 0) << "it may still become the restart of all ranks";
    restarts.is_whole();
    EXPECT_EQ(restarts.repairs(), 1);
    EXPECT_TRUE(restarts.rank_died());
    EXPECT_EQ(restarts.left(), 0);
    EXPECT_TRUE(restarts.may_start_all());
    restarts.is_whole();
    EXPECT_FALSE(restarts.may_start_all());
    EXPECT_FALSE(restarts.rank_died());
    EXPECT_EQ(restarts.holes(), 0);
    EXPECT_EQ(restarts.repairs(), 2);
}

TEST(Restarts, each_process_that_dies_before_it_joins_takes_one) {
    Restarts restarts(3);
    EXPECT_TRUE(restarts.rank_died());
    EXPECT_TRUE(restarts.newcomer_died());
    EXPECT_TRUE(restarts.newcomer_died());
    EXPECT_FALSE(restarts.newcomer_died());
    EXPECT_TRUE(restarts.rank_died()) << "the restart for the ranks that are dead is taken already";
    EXPECT_EQ(restarts.repairs(), 2);
}

TEST(Restarts, where_there_are_none_nobody_is_replaced) {
    Restarts restarts(0);
    EXPECT_FALSE(restarts.newcomer_died());
    EXPECT_FALSE(restarts.rank_died());
    EXPECT_FALSE(restarts.may_start_all());
    EXPECT_EQ(restarts.repairs(), 0);
}

}  // namespace
}  // namespace tutti::launch
