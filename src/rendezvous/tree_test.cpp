// The neighbours of each rank, and what a rank makes of its lifelines.
#include "rendezvous/tree.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace tutti::rendezvous {
namespace {

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

TEST(Trees, give_each_rank_the_neighbours_whose_parent_it_is) {
    std::mt19937 random(4711);
    for (int round = 0; round < 3000; ++round) {
        const int size = 1 + static_cast<int>(random() % 70);
        std::vector<bool> gone(static_cast<std::size_t>(size));
        const auto often = 1 + random() % 8;
        for (int rank = 0; rank < size; ++rank) gone[static_cast<std::size_t>(rank)] = random() % often == 0;
        const int rank = static_cast<int>(random() % static_cast<unsigned>(size));
        std::vector<int> expected;
        if (const int parent = parent_of(rank, gone); parent >= 0) expected.push_back(parent);
        for (int other = 0; other < size; ++other) {
            if (other != rank && !gone[static_cast<std::size_t>(other)] && parent_of(other, gone) == rank)
                expected.push_back(other);
        }
        EXPECT_EQ(neighbours_of(rank, gone), expected) << "rank " << rank << " of " << size;
    }
}

TEST(Trees, offer_each_lower_rank_once_as_a_parent_and_ancestors_first) {
    Tree tree(13, 16);
    EXPECT_EQ(tree.possible_parents(), (std::vector<int>{12, 8, 0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11}));
    tree.note_goodbye(8, false);
    tree.note_goodbye(3, false);
    EXPECT_EQ(tree.possible_parents(), (std::vector<int>{12, 0, 1, 2, 4, 5, 6, 7, 9, 10, 11}));
    EXPECT_TRUE(Tree(0, 16).possible_parents().empty());
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

TEST(Trees, count_on_a_rank_until_its_children_have_come_and_have_another_parent) {
    Tree tree(4, 8);
    EXPECT_TRUE(tree.is_counted_on()) << "5 and 6 have not come";
    const LineId parent = tree.attach({.rank = 0, .role = Role::parent, .confirmed = true});
    const LineId five = tree.attach({.rank = 5});
    tree.has_come(5);
    tree.has_come(6);
    EXPECT_TRUE(tree.is_counted_on()) << "5 has no other";
    tree.find(five)->may_end = true;
    EXPECT_FALSE(tree.is_counted_on());
    EXPECT_FALSE(tree.find(parent)->may_end);
    EXPECT_EQ(tree.release_parent(), std::vector{parent});
    EXPECT_TRUE(tree.find(parent)->may_end);
    EXPECT_TRUE(tree.release_parent().empty()) << "it has none any more";
}

TEST(Trees, know_a_rank_as_connected_until_its_last_lifeline_ends) {
    Tree tree(0, 2);
    const LineId first = tree.attach({.rank = 1}), second = tree.attach({.rank = 1, .role = Role::beside});
    tree.detach(first);
    EXPECT_TRUE(tree.is_connected(1));
    tree.detach(second);
    EXPECT_FALSE(tree.is_connected(1));
    EXPECT_EQ(tree.find(second), nullptr);
}

TEST(Trees, know_which_ranks_have_new_neighbours_since_others_left) {
    Tree tree(7, 8);
    EXPECT_FALSE(tree.has_new_neighbours(6));
    tree.note_goodbye(4, false);
    EXPECT_TRUE(tree.has_new_neighbours(6)) << "its parent is 0 now";
    EXPECT_TRUE(tree.has_new_neighbours(0)) << "5 and 6 are its children now";
    EXPECT_FALSE(tree.has_new_neighbours(2));
    tree.note_goodbye(0, false);
    EXPECT_TRUE(tree.has_new_neighbours(1)) << "all children of 0 are its own now";
}

TEST(Trees, know_behind_which_neighbour_a_rank_lies) {
    Tree four(4, 16);
    for (const auto& [rank, neighbour] : {std::pair{7, 6}, {5, 5}, {1, 0}, {9, 0}, {0, 0}})
        EXPECT_EQ(four.direction_of(rank), neighbour) << rank;
    four.note_goodbye(6, true);
    EXPECT_EQ(four.direction_of(7), 7);
    four.note_goodbye(0, true);
    EXPECT_EQ(four.direction_of(9), 1);
    four.note_goodbye(4, true);
    EXPECT_EQ(four.direction_of(7), 7) << "for a rank that leaves, too";
}

TEST(Trees, know_new_neighbours_that_nobody_else_tells_of_the_end) {
    Tree four(4, 8);
    const LineId zero = four.attach({0, Role::parent, true});
    EXPECT_EQ(four.neighbours_to_tell(), std::vector<int>{}) << "5 and 6 have yet to come";
    four.has_come(5);
    EXPECT_EQ(four.neighbours_to_tell(), std::vector{5});
    four.note_goodbye(5, true);
    EXPECT_EQ(four.neighbours_to_tell(), std::vector<int>{});
    four.note_goodbye(0, false);
    four.detach(zero);
    EXPECT_EQ(four.neighbours_to_tell(), std::vector{1});
}

TEST(Trees, offer_ancestors_first_and_only_lower_ranks_as_parents) {
    Tree tree(7, 9);
    EXPECT_EQ(tree.possible_parents(), (std::vector<int>{6, 4, 0, 1, 2, 3, 5}));
    tree.note_goodbye(6, false);
    tree.note_goodbye(0, false);
    EXPECT_EQ(tree.possible_parents(), (std::vector<int>{4, 1, 2, 3, 5}));
    EXPECT_TRUE(Tree(0, 9).possible_parents().empty());
}

}  // namespace
}  // namespace tutti::rendezvous
