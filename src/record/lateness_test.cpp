#include "record/lateness.hpp"

#include "record/test_dumps.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::record {
namespace {

using test::dump_of, test::entry_of, test::message_of;

constexpr std::int64_t one_second = 1'000'000'000;

std::vector<int> order_of(const LatenessByRank& lateness) {
    std::vector<int> ranks;
    for (const Lateness& one : lateness.ranks) ranks.push_back(one.rank);
    return ranks;
}

TEST(Lateness, is_of_the_rank_that_came_last_and_sums_up) {
    const auto entries = [](std::int64_t first, std::int64_t other) {
        return std::vector{entry_of(1, State::completed, first * one_second, 9 * one_second),
                           entry_of(2, State::started, other * one_second)};
    };
    const auto worlds =
        merge({dump_of(0, 3, entries(1, 4)), dump_of(1, 3, entries(1, 4)), dump_of(2, 3, entries(3, 5))});
    const LatenessByRank lateness = lateness_of(worlds.at(0));
    EXPECT_EQ(lateness.collectives, 2U);
    EXPECT_EQ(order_of(lateness), (std::vector{2, 0, 1}));
    EXPECT_DOUBLE_EQ(lateness.ranks[0].caused_s, 6);
    EXPECT_EQ(lateness.ranks[0].awaited, 2U);
    EXPECT_DOUBLE_EQ(lateness.ranks[1].waited_s, 3);
}

TEST(Lateness, follows_the_root_of_a_collective) {
    const auto rooted = [](Kind kind, std::int64_t begin) {
        Entry entry = entry_of(1, State::completed, begin * one_second, 9 * one_second);
        entry.kind = kind;
        entry.peer = 0;
        return std::vector{entry};
    };
    for (const Kind kind : {Kind::from_root, Kind::to_root}) {
        const auto worlds =
            merge({dump_of(0, 3, rooted(kind, 2)), dump_of(1, 3, rooted(kind, 1)), dump_of(2, 3, rooted(kind, 5))});
        const LatenessByRank lateness = lateness_of(worlds.at(0));
        EXPECT_EQ(lateness.ranks[0].rank, kind == Kind::from_root ? 0 : 2);
        EXPECT_DOUBLE_EQ(lateness.ranks[0].caused_s, kind == Kind::from_root ? 1 : 3);
        EXPECT_DOUBLE_EQ(lateness.ranks[1].caused_s, 0);
    }
}

TEST(Lateness, does_not_count_what_a_rank_has_not_come_to_and_messages) {
    const auto worlds = merge({dump_of(0, 2, {entry_of(1, State::started), message_of(Kind::send, 1, State::started)}),
                               dump_of(1, 2, {message_of(Kind::receive, 0, State::started, 7000)})});
    EXPECT_EQ(lateness_of(worlds.at(0)).collectives, 0U);
    EXPECT_EQ(lateness_table(worlds.at(0)), "");
}

TEST(Lateness, has_a_table_of_bounded_length) {
    std::vector<Dump> dumps;
    for (int rank = 0; rank < 40; ++rank) dumps.push_back(dump_of(rank, 40, {entry_of(1, State::completed, rank)}));
    const std::string table = lateness_table(merge(std::move(dumps)).at(0));
    EXPECT_EQ(std::ranges::count(table, '\n'), 19);
    EXPECT_NE(table.find("and 24 ranks more"), std::string::npos) << table;
}

}  // namespace
}  // namespace tutti::record
