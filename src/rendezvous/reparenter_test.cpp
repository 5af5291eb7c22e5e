// When a rank looks for a new parent, and whom it tries.
#include "rendezvous/reparenter.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;
const Instant begun{std::chrono::hours(1)};
constexpr std::array candidates{6, 4, 0};

TEST(Reparenters, wait_until_they_are_due) {
    Reparenter reparenter;
    EXPECT_FALSE(reparenter.is_due(begun));
    EXPECT_FALSE(reparenter.due());
    reparenter.request(begun + 20ms);
    EXPECT_FALSE(reparenter.is_due(begun + 19ms));
    EXPECT_TRUE(reparenter.is_due(begun + 20ms));
    EXPECT_EQ(reparenter.due(), begun + 20ms);
}

TEST(Reparenters, try_one_candidate_at_a_time_and_all_again_after_a_pause) {
    Reparenter reparenter;
    reparenter.request(begun);
    for (const int expected : candidates) {
        ASSERT_TRUE(reparenter.is_due(begun));
        EXPECT_EQ(reparenter.next(candidates, begun), expected);
        EXPECT_FALSE(reparenter.is_due(begun + 1h)) << "the last attempt is not over";
        EXPECT_FALSE(reparenter.due());
        reparenter.failed();
    }
    EXPECT_FALSE(reparenter.next(candidates, begun));
    EXPECT_FALSE(reparenter.is_due(begun + Reparenter::pause - 1ms));
    EXPECT_TRUE(reparenter.is_due(begun + Reparenter::pause));
    EXPECT_EQ(reparenter.next(candidates, begun + Reparenter::pause), 6);
}

TEST(Reparenters, pass_over_candidates_that_have_gone_meanwhile) {
    Reparenter reparenter;
    reparenter.request(begun);
    EXPECT_EQ(reparenter.next(candidates, begun), 6);
    reparenter.failed();
    EXPECT_EQ(reparenter.next(std::array{6, 0}, begun), 0);
}

TEST(Reparenters, end_with_a_new_parent_and_begin_from_the_first_candidate_when_that_goes) {
    Reparenter reparenter;
    reparenter.request(begun);
    EXPECT_EQ(reparenter.next(candidates, begun), 6);
    reparenter.done();
    EXPECT_FALSE(reparenter.is_due(begun + 1h));
    reparenter.request(begun);
    EXPECT_EQ(reparenter.next(candidates, begun), 6);
}

TEST(Reparenters, try_nobody_for_a_while_where_no_attempt_can_be_made) {
    Reparenter reparenter;
    reparenter.request(begun);
    EXPECT_EQ(reparenter.next(candidates, begun), 6);
    reparenter.failed_for_all(begun);
    EXPECT_FALSE(reparenter.is_due(begun));
    EXPECT_EQ(reparenter.due(), begun + Reparenter::pause);
}

}  // namespace
}  // namespace tutti::rendezvous
