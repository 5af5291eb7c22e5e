// Tests of the builder: what it finds out about the steps that it is given.
#include "schedule/builder.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::schedule {
namespace {

TEST(Builder, waits_only_for_what_it_must) {
    Builder b("test");
    b.send(1, {Buffer::input, 0, 4});
    b.send(1, {Buffer::input, 4, 4});
    b.receive(1, {Buffer::input, 0, 2});  // overwrites what the first sends
    b.copy({Buffer::output, 0, 2}, {Buffer::input, 0, 2});
    const Schedule s = std::move(b).finish();
    EXPECT_EQ(s.steps[1].after_count, 0U);
    ASSERT_EQ(s.steps[2].after_count, 1U);
    EXPECT_EQ(s.after[s.steps[2].first_after], 0U);
    ASSERT_EQ(s.steps[3].after_count, 1U);
    EXPECT_EQ(s.after[s.steps[3].first_after], 2U);
}

// Publishes `chunks` of its input in rounds of their own, the last by `publish_last`, and returns the steps'
// `following`.
template <class PublishLast>
std::vector<std::uint32_t> following(const std::vector<std::vector<Chunk>>& chunks, PublishLast publish_last) {
    Builder b("test");
    for (std::uint32_t round = 0; round + 1 < chunks.size(); ++round) b.publish(round, chunks[round]);
    publish_last(b, static_cast<std::uint32_t>(chunks.size() - 1), chunks.back());
    b.use_rounds(static_cast<std::uint32_t>(chunks.size()) + 1);
    std::vector<std::uint32_t> found;
    for (const Step& step : std::move(b).finish().steps) {
        if (step.kind == StepKind::publish) found.push_back(step.following);
    }
    return found;
}
constexpr auto plainly = [](Builder& b, std::uint32_t round, const std::vector<Chunk>& last) {
    b.publish(round, last);
};
std::vector<std::uint32_t> following(const std::vector<std::vector<Chunk>>& chunks) {
    return following(chunks, plainly);
}
Chunk of_input(std::uint64_t offset, std::uint64_t count) {
    return {Buffer::input, offset, count};
}

TEST(Builder, tells_at_once_what_follows_without_a_condition) {
    using Following = std::vector<std::uint32_t>;
    const std::vector<std::vector<Chunk>> row{{of_input(0, 4)}, {of_input(4, 4)}, {of_input(8, 3)}};
    EXPECT_EQ(following(row), (Following{2, 1, 0}));
    EXPECT_EQ(following({{of_input(0, 4)}, {of_input(4, 3)}, {of_input(7, 3)}}), (Following{0, 1, 0}));
    EXPECT_EQ(following({{of_input(0, 4)}, {of_input(4, 5)}}), (Following{0, 0}));
    EXPECT_EQ(following({{of_input(0, 4)}, {of_input(8, 4)}}), (Following{0, 0}));
    const std::vector<std::vector<Chunk>> pair{{of_input(0, 4), of_input(20, 4)}, {of_input(4, 4), of_input(24, 4)}};
    EXPECT_EQ(following(pair), (Following{1, 0}));
    EXPECT_EQ(following({pair[0], {of_input(4, 4), of_input(24, 3)}}), (Following{0, 0}));
    EXPECT_EQ(following({pair[0], {of_input(4, 4)}}), (Following{0, 0}));
}

TEST(Builder, tells_by_itself_what_is_offered_delivered_later_or_not_ready) {
    using Following = std::vector<std::uint32_t>;
    const std::vector<std::vector<Chunk>> row{{of_input(0, 4)}, {of_input(4, 4)}};
    const auto by = [&](auto publish_last) { return following(row, publish_last); };
    const Following alone{0, 0};
    EXPECT_EQ(by(plainly), (Following{1, 0}));
    EXPECT_EQ(by([](Builder& b, std::uint32_t round, const auto& last) { b.publish(round, last, Offer::copy); }),
              alone);
    EXPECT_EQ(by([](Builder& b, std::uint32_t round, const auto& last) { b.publish_undelivered(round, last); }), alone);
    EXPECT_EQ(by([](Builder& b, std::uint32_t round, const auto& last) { b.publish(round + 1, last); }), alone);
    EXPECT_EQ(by([](Builder& b, std::uint32_t round, const auto& last) { b.publish(round, last, Offer::none, 1); }),
              alone);
    EXPECT_EQ(by([](Builder& b, std::uint32_t round, const auto& last) {
                  b.copy(of_input(5, 1), of_input(9, 1));
                  b.publish(round, last);
              }),
              alone);
}

}  // namespace
}  // namespace tutti::schedule
