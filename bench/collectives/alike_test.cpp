#include "bench/collectives/bench.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tutti::bench {
namespace {

/// A row that took `us`, with a cache line's way before and after it.
Row took(double us, double before_ns, double after_ns) {
    Row row;
    row.median_us = us;
    row.line_before_ns = before_ns;
    row.line_after_ns = after_ns;
    return row;
}
std::vector<std::vector<double>> times(const std::vector<std::vector<Row>>& rounds) {
    std::vector<std::vector<double>> result;
    for (const auto& rows : rounds) {
        auto& one = result.emplace_back();
        for (const Row& row : rows) one.push_back(row.median_us);
    }
    return result;
}

using Times = std::vector<std::vector<double>>;

TEST(Alike, CountsRoundsInWhichTheLineTookAsLong) {
    // Ours was twice in one cache, the peer once.
    const auto found = alike({{took(1, 50, 52), took(2, 200, 210), took(3, 60, 45)},
                              {took(4, 205, 260), took(5, 230, 190), took(6, 48, 50)}});
    EXPECT_EQ(times(found), (Times{{1, 3}, {6}}));
}

TEST(Alike, TakesTheStateThatTheOneWithTheFewestHasSeenMost) {
    const auto found = alike({{took(1, 14, 14), took(2, 14, 15), took(3, 14, 14), took(4, 50, 50), took(5, 50, 55)},
                              {took(6, 14, 14), took(7, 52, 50), took(8, 50, 51)}});
    EXPECT_EQ(times(found), (Times{{4, 5}, {7, 8}}));
}

TEST(Alike, LeavesOutRowsDuringWhichTheCpusMoved) {
    const auto found = alike({{took(1, 50, 200), took(2, 51, 50)}, {took(3, 50, 50), took(4, 200, 50)}});
    EXPECT_EQ(times(found), (Times{{2}, {3}}));
}

TEST(Alike, FindsNoneWhereNoneAreAlike) {
    EXPECT_EQ(times(alike({{took(1, 50, 50)}, {took(2, 200, 200)}})), (Times{{}, {}}));
    EXPECT_EQ(times(alike({{took(1, 50, 200)}, {took(2, 50, 200)}})), (Times{{}, {}}));
}

TEST(Alike, WhatDoesNotKnowItsLinesIsAlikeToAll) {
    EXPECT_EQ(times(alike({{took(1, 50, 50), took(2, 200, 200), took(3, 200, 200)}, {took(4, 0, 0)}})),
              (Times{{2, 3}, {4}}));
    EXPECT_EQ(times(alike({{took(1, 0, 0), took(2, 0, 0)}, {took(3, 0, 0)}})), (Times{{1, 2}, {3}}));
}

}  // namespace
}  // namespace tutti::bench
