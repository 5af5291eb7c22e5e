// Tests of the builder: its findings about the steps that it gets.
#include "schedule/builder.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::schedule {
namespace {

TEST(Builder, waits_only_for_what_it_must) {
    Builder b("test");
    b.send(1, {Buffer::input, 0, 4});
    b.send(1, {Buffer::input, 4, 4});
    b.receive(1, {Buffer::input, 0, 2});  // overwrites the elements that the first sends
    b.copy({Buffer::output, 0, 2}, {Buffer::input, 0, 2});
    const Schedule s = std::move(b).finish();
    EXPECT_EQ(s.steps[1].after_count, 0U);
    ASSERT_EQ(s.steps[2].after_count, 1U);
    EXPECT_EQ(s.after[s.steps[2].first_after], 0U);
    ASSERT_EQ(s.steps[3].after_count, 1U);
    EXPECT_EQ(s.after[s.steps[3].first_after], 2U);
}

TEST(Builder, lets_steps_in_place_wait_for_what_they_touch_of_this_rank) {
    const Chunk first{Buffer::output, 0, 2}, second{Buffer::output, 2, 2}, mine{Buffer::input, 0, 2};
    Builder b("test");
    b.meet(std::vector{first}, false);
    b.copy(first, mine);
    b.write_in_place(1, second, first);
    b.read_in_place(1, first, second);
    const Schedule s = std::move(b).finish();
    EXPECT_TRUE(s.in_place);
    ASSERT_EQ(s.steps.size(), 6U);  // meet, copy, write, read, release, settle
    EXPECT_EQ(s.steps[2].after_count, 1U) << "the copy comes before what it has written is written further";
    EXPECT_EQ(s.steps[3].after_count, 0U) << "another rank's chunk is not this rank's";
    EXPECT_EQ(s.steps.back().kind, StepKind::settle);
}

}  // namespace
}  // namespace tutti::schedule
