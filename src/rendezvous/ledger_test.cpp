// The ranks that have to answer for each piece of news.
#include "rendezvous/ledger.hpp"

#include <gtest/gtest.h>

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;
const Instant begun = Clock::now();

// Each rank is a neighbour.
int itself(int rank) {
    return rank;
}

TEST(Ledgers, settle_own_news_when_all_neighbours_have_answered) {
    Ledger ledger;
    ledger.open(7, Ledger::own);
    ledger.ask(7, 1, begun);
    ledger.ask(7, 2, begun);
    ledger.done(7);
    EXPECT_FALSE(ledger.settled());
    ledger.acknowledged(7, 1, begun + 1ms);
    ledger.answered(7, 2, begun + 1ms);
    EXPECT_TRUE(ledger.unacknowledged().empty()) << "both live";
    EXPECT_FALSE(ledger.settled()) << "but behind 1 somebody may not have heard";
    ledger.answered(7, 1, begun + 2ms);
    EXPECT_TRUE(ledger.settled());
    EXPECT_TRUE(ledger.take_answers(itself).empty()) << "nobody asked";
}

TEST(Ledgers, answer_for_others_news_when_the_own_part_is_done_and_all_behind_have_answered) {
    Ledger ledger;
    ledger.open(7, 3);
    ledger.ask(7, 1, begun);
    ledger.answered(7, 1, begun);
    EXPECT_TRUE(ledger.take_answers(itself).empty());
    ledger.done(7);
    const auto answers = ledger.take_answers(itself);
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].to, 3);
    EXPECT_EQ(answers[0].id, 7U);
    EXPECT_TRUE(ledger.take_answers(itself).empty()) << "once";
    EXPECT_TRUE(ledger.settled());
}

TEST(Ledgers, answer_all_that_ask_when_all_behind_have_answered_but_those_in_their_own_direction) {
    const auto direction = [](int rank) { return rank == 4 || rank == 5 ? 3 : rank; };
    Ledger ledger;
    ledger.open(7, 3);
    for (const int neighbour : {1, 4}) ledger.ask(7, neighbour, begun);
    ledger.owe_too(7, 5);  // around 3, as has this rank to 4
    ledger.owe_too(7, 2);
    ledger.done(7);
    EXPECT_TRUE(ledger.take_answers(direction).empty());
    ledger.answered(7, 1, begun);
    const auto answers = ledger.take_answers(direction);
    ASSERT_EQ(answers.size(), 2U);
    EXPECT_EQ(answers[0].to, 3);
    EXPECT_EQ(answers[1].to, 5);
    EXPECT_TRUE(ledger.owes(7, 2));
    EXPECT_FALSE(ledger.owes(7, 5));
    ledger.answered(7, 4, begun);
    const auto last = ledger.take_answers(direction);
    ASSERT_EQ(last.size(), 1U);
    EXPECT_EQ(last[0].to, 2);
    ledger.owe_too(7, 5);
    EXPECT_FALSE(ledger.owes(7, 5)) << "it has given its answers";
}

TEST(Ledgers, know_since_when_a_neighbour_has_shown_no_sign_of_life) {
    Ledger ledger;
    for (const Ledger::Id id : {7, 8}) {
        ledger.open(id, Ledger::own);
        ledger.ask(id, 1, begun + std::chrono::milliseconds(id));
    }
    EXPECT_EQ(ledger.unacknowledged().at(1), begun + 7ms);
    ledger.acknowledged(7, 1, begun + 20ms);
    EXPECT_EQ(ledger.unacknowledged().at(1), begun + 20ms);
    ledger.acknowledged(8, 1, begun + 30ms);
    EXPECT_TRUE(ledger.unacknowledged().empty());
    ledger.acknowledged(9, 5, begun);  // a neighbour may say anything
    ledger.answered(9, 5, begun);
    EXPECT_TRUE(ledger.unacknowledged().empty());
}

TEST(Ledgers, ask_each_neighbour_once_for_each_piece_of_news) {
    Ledger ledger;
    ledger.open(7, Ledger::own);
    ledger.ask(7, 1, begun);
    ledger.answered(7, 1, begun);
    ledger.ask_all(1, begun);  // a second lifeline to it
    EXPECT_TRUE(ledger.unacknowledged().empty());
    EXPECT_TRUE(ledger.settled());
}

TEST(Ledgers, expect_nothing_more_of_who_is_dropped_but_of_those_behind_it) {
    Ledger ledger;
    ledger.open(7, Ledger::own);
    ledger.open(8, 2);
    ledger.ask(7, 1, begun);
    ledger.ask(8, 1, begun);
    ledger.done(8);
    ledger.ask_all(2, begun);  // is behind 1; it told 8
    ledger.drop(1);
    EXPECT_EQ(ledger.take_answers(itself).size(), 1U) << "8 is answered";
    EXPECT_FALSE(ledger.settled());
    EXPECT_EQ(ledger.unacknowledged().size(), 1U);
    ledger.answered(7, 2, begun);
    EXPECT_TRUE(ledger.settled());
}

}  // namespace
}  // namespace tutti::rendezvous
