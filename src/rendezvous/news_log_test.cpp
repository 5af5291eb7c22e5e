// The news that a rank passes on, each piece once.
#include "rendezvous/news_log.hpp"

#include <gtest/gtest.h>

namespace tutti::rendezvous {
namespace {

using Source = NewsLog::Source;

TEST(NewsLogs, keep_each_piece_once_for_lifelines_that_come_later) {
    NewsLog log;
    const Verdict goodbye{VerdictKind::left, 1, {}}, loss{VerdictKind::peer_lost, 2, "killed"};
    EXPECT_TRUE(log.add(goodbye, Source::neighbour));
    EXPECT_FALSE(log.is_final());
    EXPECT_FALSE(log.add(goodbye, Source::neighbour));
    EXPECT_TRUE(log.add(loss, Source::this_rank));
    EXPECT_TRUE(log.is_final());
    EXPECT_EQ(log.bytes(), News(goodbye).bytes + News(loss).bytes);
}

TEST(NewsLogs, take_an_accusation_that_counts_more_than_the_last_and_no_other) {
    NewsLog log;
    const auto accusation = [](VerdictKind kind, int from) { return Verdict{kind, -1, "it hangs", 0, from}; };
    EXPECT_TRUE(log.add(accusation(VerdictKind::timed_out, 3), Source::neighbour));
    EXPECT_FALSE(log.add(accusation(VerdictKind::timed_out, 4), Source::neighbour));
    EXPECT_TRUE(log.add(accusation(VerdictKind::timed_out, 2), Source::neighbour));
    EXPECT_TRUE(log.add(accusation(VerdictKind::mismatch, 5), Source::neighbour)) << "a cause before a symptom";
    EXPECT_FALSE(log.add(accusation(VerdictKind::timed_out, 0), Source::neighbour));
}

TEST(NewsLogs, let_no_rank_accuse_that_has_another_s_accusation) {
    NewsLog log;
    EXPECT_TRUE(log.add({VerdictKind::timed_out, -1, "it hangs", 0, 3}, Source::neighbour));
    EXPECT_FALSE(log.add({VerdictKind::mismatch, -1, "it differs", 0, 0}, Source::this_rank));
    EXPECT_TRUE(log.add({VerdictKind::aborted, 0, "enough"}, Source::this_rank)) << "that is no accusation";
}

}  // namespace
}  // namespace tutti::rendezvous
