// Messages that ask before they move.
#include "transport/long_messages.hpp"

#include <gtest/gtest.h>

namespace tutti::transport {
namespace {

TEST(LongMessage, is_answered_once_by_its_id) {
    LongMessages messages;
    Transfer first, second;
    first.peer = second.peer = 1;
    const std::uint64_t id = messages.announce(first), other = messages.announce(second);
    EXPECT_NE(id, other);
    EXPECT_EQ(messages.take_announced(1, id), &first);
    EXPECT_EQ(messages.take_announced(1, id), nullptr);
    EXPECT_TRUE(messages.withdraw(second));
    EXPECT_FALSE(messages.withdraw(second));
    EXPECT_EQ(messages.take_announced(1, other), nullptr);
}

TEST(LongMessage, is_answered_by_its_receiver_alone) {
    LongMessages messages;
    Transfer send;
    send.peer = 1;
    const std::uint64_t id = messages.announce(send);
    EXPECT_EQ(messages.take_announced(2, id), nullptr);
    EXPECT_EQ(messages.take_announced(1, id), &send);
}

TEST(LongMessage, goes_to_the_receive_that_was_granted_to_its_source_and_length) {
    LongMessages messages;
    Transfer receive;
    receive.peer = 3;
    receive.bytes = 1000;
    messages.grant(3, 5, receive);
    EXPECT_EQ(messages.take_granted(2, 5, 1000), nullptr);
    EXPECT_EQ(messages.take_granted(3, 6, 1000), nullptr);
    EXPECT_EQ(messages.take_granted(3, 5, 999), nullptr);
    EXPECT_EQ(messages.take_granted(2, 5 ^ (std::uint64_t{1} << 40), 1000), nullptr);  // a number that no rank gives
    EXPECT_EQ(messages.take_granted(3, 5, 1000), &receive);
    EXPECT_EQ(messages.take_granted(3, 5, 1000), nullptr);
}

TEST(LongMessage, is_cleared_in_the_next_turn_once) {
    LongMessages messages;
    messages.clear_later({1, 7, 5});
    ASSERT_EQ(messages.take_clears().size(), 1U);
    EXPECT_TRUE(messages.take_clears().empty());
}

}  // namespace
}  // namespace tutti::transport
