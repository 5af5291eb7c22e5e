// Whether two ranks mean the same, where no message and receive meet.
#include "transport/call_checks.hpp"

#include <gtest/gtest.h>

namespace tutti::transport {
namespace {

constexpr std::uint64_t called = collective_channel | 5;

class Checks : public testing::Test, protected Calls {
 protected:
    bool has_left(std::uint64_t) const override { return left_; }
    std::uint64_t fingerprint_of(std::uint64_t) const override { return mine_; }
    bool has_finished(std::uint64_t) const override { return finished_; }
    bool has_sent_all(int, std::uint64_t) const override { return finished_; }
    static Frame of(std::uint64_t fingerprint) {
        Frame frame;
        frame.channel = called;
        frame.fingerprint = fingerprint;
        frame.length = 100;
        return frame;
    }

    bool left_ = false, finished_ = false;
    std::uint64_t mine_ = 0;
    Matching matching_;
    Findings findings_;
    CallChecks checks_{*this, matching_, findings_};
};

TEST_F(Checks, allow_a_message_before_the_call_and_none_of_another_call_or_behind_it) {
    EXPECT_TRUE(checks_.allows_unmet(1, of(7)));
    mine_ = 7;
    EXPECT_TRUE(checks_.allows_unmet(1, of(7)));
    EXPECT_FALSE(checks_.allows_unmet(1, of(8)));
    finished_ = true;
    EXPECT_FALSE(checks_.allows_unmet(1, of(7)));
    const auto found = findings_.take();
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].theirs, 8U);
    EXPECT_EQ(found[0].mine, 7U);
    EXPECT_EQ(found[1].their_bytes, 100U) << "so much too many";
}

TEST_F(Checks, answer_a_peer_that_waits_for_this_rank) {
    using Answer = CallChecks::Answer;
    EXPECT_EQ(checks_.answer_probe(1, of(7)), Answer::none) << "it has not called yet";
    mine_ = 7;
    EXPECT_EQ(checks_.answer_probe(1, of(7)), Answer::none) << "it is on its way";
    EXPECT_EQ(checks_.answer_probe(1, of(8)), Answer::mismatch);
    finished_ = true;
    EXPECT_EQ(checks_.answer_probe(1, of(7)), Answer::finished);
    left_ = true;
    EXPECT_EQ(checks_.answer_probe(1, of(7)), Answer::refused);
    EXPECT_EQ(findings_.take().size(), 1U);
}

TEST_F(Checks, find_a_receive_for_which_nothing_will_come) {
    Transfer receive;
    receive.peer = 1;
    receive.channel = called;
    receive.fingerprint = 7;
    receive.bytes = 50;
    matching_.post(receive);
    checks_.on_finished(2, of(7));
    checks_.on_finished(1, of(8));
    EXPECT_TRUE(findings_.empty());
    checks_.on_finished(1, of(7));
    const auto found = findings_.take();
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].my_bytes, 50U);
}

TEST_F(Checks, find_messages_of_another_call_when_this_one_begins_and_surplus_when_it_ends) {
    matching_.keep(1, of(7));
    checks_.check_unexpected(called, 7);
    EXPECT_TRUE(findings_.empty());
    checks_.check_unexpected(called, 8);
    EXPECT_EQ(findings_.take().size(), 1U);
    checks_.check_surplus(called, 7);
    EXPECT_EQ(findings_.take().size(), 1U);
    checks_.check_surplus(called + 1, 7);
    EXPECT_TRUE(findings_.empty());
}

}  // namespace
}  // namespace tutti::transport
