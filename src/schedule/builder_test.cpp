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
    b.put(1, second, first);
    b.get(1, second, first);
    const Schedule s = std::move(b).finish();
    EXPECT_TRUE(s.in_place);
    ASSERT_EQ(s.steps.size(), 6U);  // meet, copy, write, read, release, settle
    EXPECT_EQ(s.steps[2].after_count, 1U) << "the copy comes before what it has written is written further";
    EXPECT_EQ(s.steps[3].after_count, 0U) << "another rank's chunk is not this rank's";
    EXPECT_EQ(s.steps.back().kind, StepKind::settle);
}

TEST(Builder, puts_all_before_a_signal_and_all_behind_a_wait) {
    const Chunk first{Buffer::output, 0, 1}, second{Buffer::output, 1, 1}, third{Buffer::output, 2, 1};
    Builder b("test");
    b.meet(std::vector{first}, false);
    b.copy(first, {Buffer::input, 0, 1});
    EXPECT_EQ(b.signal(), 1U);
    b.copy(second, {Buffer::input, 1, 1});
    EXPECT_EQ(b.signal(), 2U);
    b.wait(1, 1);
    b.copy(third, {Buffer::input, 2, 1});
    const Schedule s = std::move(b).finish();
    const auto after = [&](std::size_t step) {
        const auto found = after_of(s, s.steps[step]);
        return std::vector<std::uint32_t>(found.begin(), found.end());
    };
    EXPECT_EQ(after(2), (std::vector<std::uint32_t>{0, 1}));
    EXPECT_EQ(after(3), std::vector<std::uint32_t>{}) << "a signal holds back nothing";
    EXPECT_EQ(after(4), (std::vector<std::uint32_t>{2, 3})) << "the first signal, and what came since";
    EXPECT_EQ(after(6), std::vector<std::uint32_t>{5}) << "the wait";
    EXPECT_EQ(s.publications, 3U) << "meet, and two signals";
}

}  // namespace
}  // namespace tutti::schedule
