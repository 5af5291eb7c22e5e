// The ranks that have to answer for each piece of news, and the neighbours of each rank.
#include "rendezvous/ledger.hpp"

#include "rendezvous/tree.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;
const Instant begun = Clock::now();

TEST(Ledgers, settle_own_news_when_all_neighbours_have_answered) {
    Ledger ledger;
    ledger.open(7, Ledger::own);
    ledger.ask(7, 1, begun);
    ledger.ask(7, 2, begun);
    ledger.told(7);
    EXPECT_FALSE(ledger.settled());
    ledger.has(7, 1, begun + 1ms);
    ledger.answered(7, 2, begun + 1ms);
    EXPECT_TRUE(ledger.unheard().empty()) << "both live";
    EXPECT_FALSE(ledger.settled()) << "but behind 1 somebody may not have heard";
    ledger.answered(7, 1, begun + 2ms);
    EXPECT_TRUE(ledger.settled());
    EXPECT_TRUE(ledger.take_answers().empty()) << "nobody asked";
}

TEST(Ledgers, answer_for_others_news_when_the_own_part_is_done_and_all_behind_have_answered) {
    Ledger ledger;
    ledger.open(7, 3);
    ledger.ask(7, 1, begun);
    ledger.answered(7, 1, begun);
    EXPECT_TRUE(ledger.take_answers().empty());
    ledger.told(7);
    const auto answers = ledger.take_answers();
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].to, 3);
    EXPECT_EQ(answers[0].id, 7U);
    EXPECT_TRUE(ledger.take_answers().empty()) << "once";
    EXPECT_TRUE(ledger.settled());
}

TEST(Ledgers, know_since_when_a_neighbour_has_shown_no_sign_of_life) {
    Ledger ledger;
    for (const Ledger::Id id : {7, 8}) {
        ledger.open(id, Ledger::own);
        ledger.ask(id, 1, begun + std::chrono::milliseconds(id));
    }
    EXPECT_EQ(ledger.unheard().at(1), begun + 7ms);
    ledger.has(7, 1, begun + 20ms);
    EXPECT_EQ(ledger.unheard().at(1), begun + 20ms);
    ledger.has(8, 1, begun + 30ms);
    EXPECT_TRUE(ledger.unheard().empty());
    ledger.has(9, 5, begun);  // a neighbour may say anything
    ledger.answered(9, 5, begun);
    EXPECT_TRUE(ledger.unheard().empty());
}

TEST(Ledgers, ask_each_neighbour_once_for_each_piece_of_news) {
    Ledger ledger;
    ledger.open(7, Ledger::own);
    ledger.ask(7, 1, begun);
    ledger.answered(7, 1, begun);
    ledger.ask_all(1, begun);  // a second lifeline to it
    EXPECT_TRUE(ledger.unheard().empty());
    EXPECT_TRUE(ledger.settled());
}

TEST(Ledgers, expect_nothing_more_of_who_is_dropped_but_of_those_behind_it) {
    Ledger ledger;
    ledger.open(7, Ledger::own);
    ledger.open(8, 2);
    ledger.ask(7, 1, begun);
    ledger.ask(8, 1, begun);
    ledger.told(8);
    ledger.ask_all(2, begun);  // is behind 1; it told 8
    ledger.drop(1);
    EXPECT_EQ(ledger.take_answers().size(), 1U) << "8 is answered";
    EXPECT_FALSE(ledger.settled());
    EXPECT_EQ(ledger.unheard().size(), 1U);
    ledger.answered(7, 2, begun);
    EXPECT_TRUE(ledger.settled());
}

TEST(Trees, lead_to_the_nearest_ancestor_that_is_not_gone) {
    std::vector<bool> gone(8);
    EXPECT_EQ(parent_of(7, gone), 6);
    EXPECT_EQ(parent_of(0, gone), -1);
    EXPECT_EQ(neighbours_of(4, gone), (std::vector<int>{0, 5, 6}));
    EXPECT_EQ(neighbours_of(0, gone), (std::vector<int>{1, 2, 4}));
    gone[6] = true;
    EXPECT_EQ(parent_of(7, gone), 4);
    EXPECT_EQ(neighbours_of(4, gone), (std::vector<int>{0, 5, 7}));
    gone[0] = true;
    EXPECT_EQ(parent_of(4, gone), 1);
    EXPECT_EQ(parent_of(1, gone), -1);
    EXPECT_EQ(neighbours_of(1, gone), (std::vector<int>{2, 4}));
}

// News go around silent ranks as in a membership: a rank that finds one turns to its neighbours.
TEST(Trees, reach_every_rank_around_any_that_are_silent) {
    std::mt19937 random(4711);
    for (int round = 0; round < 2000; ++round) {
        const int size = 2 + static_cast<int>(random() % 40);
        std::vector<bool> gone(static_cast<std::size_t>(size)), silent(gone), heard(gone);
        for (int rank = 0; rank < size; ++rank) {
            const auto index = static_cast<std::size_t>(rank);
            gone[index] = random() % 8 == 0;
            silent[index] = !gone[index] && random() % 4 == 0;
        }
        std::vector<int> living;
        for (int rank = 0; rank < size; ++rank) {
            if (!gone[static_cast<std::size_t>(rank)] && !silent[static_cast<std::size_t>(rank)])
                living.push_back(rank);
        }
        if (living.empty()) continue;
        std::deque<int> reached{living[random() % living.size()]};
        heard[static_cast<std::size_t>(reached.front())] = true;
        while (!reached.empty()) {
            const int rank = reached.front();
            reached.pop_front();
            std::vector<bool> asked(gone);
            std::deque<int> to_ask;
            const auto ask_neighbours_of = [&](int of) {
                for (const int other : neighbours_of(of, gone)) {
                    if (asked[static_cast<std::size_t>(other)]) continue;
                    asked[static_cast<std::size_t>(other)] = true;
                    to_ask.push_back(other);
                }
            };
            asked[static_cast<std::size_t>(rank)] = true;
            ask_neighbours_of(rank);
            while (!to_ask.empty()) {
                const int other = to_ask.front();
                to_ask.pop_front();
                if (silent[static_cast<std::size_t>(other)]) {
                    ask_neighbours_of(other);
                } else if (!heard[static_cast<std::size_t>(other)]) {
                    heard[static_cast<std::size_t>(other)] = true;
                    reached.push_back(other);
                }
            }
        }
        for (const int rank : living) EXPECT_TRUE(heard[static_cast<std::size_t>(rank)]) << rank << " of " << size;
    }
}

}  // namespace
}  // namespace tutti::rendezvous
