// How many bytes two ranks may send each other ahead of the receives.
#include "transport/credit.hpp"

#include <gtest/gtest.h>

namespace tutti::transport {
namespace {

constexpr std::size_t longest = std::size_t{256} << 10;

TEST(Credits, are_spent_until_the_peer_gives_them_back) {
    Credit credit;
    const std::size_t cost = Credit::cost_of(longest);
    std::size_t sent = 0;
    for (; credit.allows(cost); ++sent) credit.spend(cost);
    EXPECT_EQ(sent, Credit::limit / cost);
    EXPECT_TRUE(credit.take_in(0, cost, longest));
    EXPECT_TRUE(credit.allows(cost));
}

TEST(Credits, are_owed_for_what_receives_take_and_paid_once) {
    Credit credit;
    ASSERT_TRUE(credit.take_in(Credit::cost_of(100), 0, longest));
    EXPECT_FALSE(credit.consume(100));
    EXPECT_EQ(credit.owed(), Credit::cost_of(100));
    EXPECT_EQ(credit.give_back(), Credit::cost_of(100));
    EXPECT_EQ(credit.give_back(), 0U);
}

TEST(Credits, are_due_when_half_of_them_is_owed) {
    Credit credit;
    const std::size_t cost = Credit::cost_of(longest);
    bool due = false;
    for (std::size_t owed = cost; owed < Credit::limit; owed += cost) {
        ASSERT_TRUE(credit.take_in(cost, 0, longest));
        due = credit.consume(longest);
        EXPECT_EQ(due, owed >= Credit::limit / 2);
    }
    EXPECT_TRUE(due);
}

TEST(Credits, bound_what_a_peer_may_say) {
    Credit credit;
    EXPECT_FALSE(credit.take_in(Credit::cost_of(longest) + 1, 0, longest)) << "too long for an eager message";
    EXPECT_FALSE(credit.take_in(0, 1, longest)) << "nothing has been sent that could be given back";
    const std::size_t cost = Credit::cost_of(longest);
    for (std::size_t taken = cost; taken <= Credit::limit; taken += cost) ASSERT_TRUE(credit.take_in(cost, 0, longest));
    EXPECT_FALSE(credit.take_in(cost, 0, longest)) << "more than it was given";
}

}  // namespace
}  // namespace tutti::transport
