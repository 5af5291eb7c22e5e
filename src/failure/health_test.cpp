// A rank's conclusions from the news that it hears, with no other ranks and the test's own clock.
#include "failure/health.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace tutti::detail {
namespace {

using rendezvous::Verdict;
using rendezvous::VerdictKind;
using std::chrono::milliseconds;

constexpr Instant start{std::chrono::hours(1)};

TEST(Health, a_goodbye_alone_ends_nothing) {
    Health health(0);
    health.hear({VerdictKind::left, 2, ""});
    EXPECT_FALSE(health.has_news());
    EXPECT_FALSE(health.bad_news().raised());
    EXPECT_TRUE(health.has_said_goodbye(2));
    EXPECT_TRUE(health.is_gone_for_good(2));
    EXPECT_FALSE(health.has_said_goodbye(1));
}

TEST(Health, a_cause_counts_before_a_symptom_and_the_first_cause_stays) {
    Health health(0);
    health.hear({VerdictKind::left, 1, "rank 1 has left the group"});
    health.hear({VerdictKind::peer_lost, 2, "killed by signal 9"});
    health.hear({VerdictKind::peer_lost, 3, "its lifeline closed"});
    ASSERT_TRUE(health.has_news());
    EXPECT_EQ(health.take_news().rank, 2);
    EXPECT_FALSE(health.has_news());
    EXPECT_EQ(health.cause()->rank, 2);
    EXPECT_TRUE(health.bad_news().raised());
}

TEST(Health, this_rank_s_own_cause_counts_only_where_there_is_none) {
    Health health(0);
    EXPECT_TRUE(health.blame({VerdictKind::peer_lost, 1, "first"}));
    EXPECT_FALSE(health.blame({VerdictKind::peer_lost, 2, "second"}));
    EXPECT_EQ(health.take_news().text, "first");
}

TEST(Health, silence_is_noted_and_is_no_failure) {
    Health health(0);
    health.hear({VerdictKind::silent, 3, "no sign of life"});
    EXPECT_FALSE(health.has_news());
    EXPECT_EQ(health.silent(), std::vector{3});
}

TEST(Health, with_a_lost_host_all_of_its_ranks_are_gone) {
    std::vector<rendezvous::Card> cards(4);
    cards[0].host_key = cards[2].host_key = "a";
    cards[1].host_key = cards[3].host_key = "b";
    Health health(0);
    health.hear({VerdictKind::host_lost, 3, "unreachable"});
    EXPECT_EQ(health.gone_for_good(cards), (std::vector{1, 3}));
}

TEST(Health, a_goodbye_counts_once_all_that_was_sent_has_been_read) {
    Health health(0);
    health.hear({VerdictKind::left, 1, ""});
    EXPECT_FALSE(health.gone(1, nullptr, false, start));
    EXPECT_EQ(health.gone(1, nullptr, true, start)->kind, VerdictKind::left);
    const transport::StreamEnd end{start};
    EXPECT_EQ(health.gone(1, &end, false, start)->kind, VerdictKind::left);
}

TEST(Health, a_stream_that_has_ended_waits_for_the_news_of_why) {
    const Health health(0);
    const transport::StreamEnd ended{start}, broken{start, "connection reset"};
    for (const auto* end : {&ended, &broken}) {
        EXPECT_FALSE(health.gone(1, end, true, start));
        EXPECT_FALSE(health.gone(1, end, true, start + milliseconds(499)));
    }
    EXPECT_EQ(health.gone(1, &ended, true, start + milliseconds(500))->kind, VerdictKind::left);
    const auto lost = health.gone(1, &broken, true, start + milliseconds(500));
    EXPECT_EQ(lost->kind, VerdictKind::peer_lost);
    EXPECT_EQ(lost->text, "rank 1 cannot be reached any more: connection reset");
}

TEST(Health, of_two_accusers_the_one_that_outranks_judges) {
    const Verdict mine{VerdictKind::timed_out, 2, "mine", 0, 1}, theirs{VerdictKind::mismatch, 3, "theirs", 0, 2};
    Health alone(1);
    EXPECT_TRUE(alone.is_judge_of(
        mine, [] { return true; }, Deadline::after(milliseconds(0))));
    Health outranked(1);
    outranked.hear(theirs);
    EXPECT_FALSE(outranked.is_judge_of(
        mine, [] { return false; }, Deadline::never()));
    EXPECT_EQ(outranked.await_judgement(Deadline::after(milliseconds(1))).text, "theirs");
}

TEST(Health, an_accuser_judges_when_not_all_can_be_told_in_time) {
    Health health(1);
    EXPECT_TRUE(health.is_judge_of(
        {VerdictKind::timed_out, 2, "mine", 0, 1}, [] { return false; }, Deadline::after(milliseconds(5))));
}

TEST(Health, a_judgement_ends_the_wait_for_it) {
    Health health(1);
    health.hear({VerdictKind::mismatch, 3, "accused", 0, 2});
    std::thread judge([&] { health.hear({VerdictKind::judged, 3, "judged", 0, 2}); });
    EXPECT_EQ(health.await_judgement(Deadline::after(std::chrono::seconds(60))).text, "judged");
    judge.join();
}

TEST(Health, nobody_waits_for_a_judge_that_has_died) {
    Health health(1);
    health.hear({VerdictKind::mismatch, 3, "accused", 0, 2});
    health.hear({VerdictKind::peer_lost, 2, "killed"});
    const Instant begin = Clock::now();
    EXPECT_EQ(health.await_judgement(Deadline::after(std::chrono::seconds(60))).text, "accused");
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace tutti::detail
