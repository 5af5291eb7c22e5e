// The steps that ranks have completed: what they agree on, and what each keeps.
#include "rendezvous/steps.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tutti::rendezvous {
namespace {

TEST(StepsOfRanks, are_those_that_all_with_a_state_have_completed) {
    const std::array reports{StepReport{.completed = -1, .failures = 2, .max_size = 9},
                             StepReport{.completed = 8, .max_size = 4}, StepReport{.completed = 7, .failures = 1}};
    const StepAgreement all = agree_on_steps(reports);
    EXPECT_EQ(all.completed, 7);
    EXPECT_EQ(all.most, 8);
    EXPECT_EQ(all.source, 1);
    EXPECT_EQ(all.max_size, 4) << "of the lowest rank with a state";
    EXPECT_EQ(all.failures, 2);
    EXPECT_TRUE(all.adopts);
    EXPECT_EQ(agree_on_steps(std::span(reports).first(1)).source, -1);
    EXPECT_FALSE(agree_on_steps(std::span(reports).last(2)).adopts);
}

TEST(StepsOfRanks, go_back_to_the_copy_from_within_a_step_and_from_behind_it) {
    Steps steps(5, true);
    EXPECT_FALSE(steps.go_back_to(5)) << "nothing has changed yet";
    EXPECT_TRUE(steps.keep());
    steps.begin();
    EXPECT_TRUE(steps.go_back_to(5)) << "from within the step";
    EXPECT_FALSE(steps.keep()) << "the copy is still of this state";
    steps.begin();
    steps.complete();
    EXPECT_EQ(steps.report(), 6);
    EXPECT_TRUE(steps.go_back_to(5)) << "another rank has not completed it";
    EXPECT_EQ(steps.completed(), 5);
    Steps newcomer(0, false);
    EXPECT_EQ(newcomer.report(), -1);
    EXPECT_FALSE(newcomer.go_back_to(5)) << "it has no copy";
    newcomer.adopt(5);
    EXPECT_EQ(newcomer.report(), 5);
    EXPECT_TRUE(newcomer.keep());
}

}  // namespace
}  // namespace tutti::rendezvous
