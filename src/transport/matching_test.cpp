// Which message meets which receive.
#include "transport/matching.hpp"

#include <gtest/gtest.h>

namespace tutti::transport {
namespace {

Transfer receive_of(int source, std::uint64_t channel) {
    Transfer transfer;
    transfer.peer = source;
    transfer.channel = channel;
    return transfer;
}

Frame on(std::uint64_t channel) {
    Frame frame;
    frame.channel = channel;
    return frame;
}

TEST(Matches, are_made_in_order_of_one_source_and_channel) {
    Matching matching;
    Transfer first = receive_of(1, 7), second = receive_of(1, 7), other = receive_of(2, 7);
    for (Transfer* one : {&other, &first, &second}) matching.post(*one);
    EXPECT_EQ(matching.take_posted(1, 8), nullptr);
    EXPECT_EQ(matching.take_posted(1, 7), &first);
    EXPECT_TRUE(matching.is_posted(1, 7));
    EXPECT_EQ(matching.take_posted(1, 7), &second);
    EXPECT_FALSE(matching.is_posted(1, 7));
    EXPECT_EQ(matching.posted_for(2, 7), &other);
    EXPECT_EQ(matching.take_posted(2, 7), &other);
}

TEST(Matches, of_any_source_are_made_with_whoever_comes) {
    Matching matching;
    Transfer any = receive_of(any_source, 7);
    matching.post(any);
    EXPECT_TRUE(matching.waits_for_any());
    EXPECT_EQ(matching.posted_for(3, 7), nullptr) << "it waits for no rank alone";
    EXPECT_EQ(matching.take_posted(3, 7), &any);
    EXPECT_FALSE(matching.waits_for_any());
    matching.post(any);
    EXPECT_TRUE(matching.withdraw(any));
    EXPECT_FALSE(matching.waits_for_any());
    EXPECT_FALSE(matching.withdraw(any));
    EXPECT_EQ(matching.take_posted(3, 7), nullptr);
}

TEST(Matches, are_made_with_messages_that_came_before_in_their_order) {
    Matching matching;
    Unexpected& first = matching.keep(1, on(7));
    Unexpected& of_other = matching.keep(2, on(7));
    Unexpected& second = matching.keep(1, on(7));
    EXPECT_EQ(matching.find(receive_of(1, 7)), &first);
    EXPECT_EQ(matching.find(receive_of(any_source, 7)), &first);
    EXPECT_EQ(matching.find(receive_of(2, 7)), &of_other);
    EXPECT_EQ(matching.find(receive_of(3, 7)), nullptr);
    Transfer bound;
    first.bound = &bound;
    EXPECT_EQ(matching.find(receive_of(1, 7)), &second) << "the first has its receive, and waits for its rest";
    matching.forget(first);
    EXPECT_EQ(matching.on(7).size(), 2U);
    matching.forget_if([](const Unexpected& message) { return message.source == 1; });
    matching.forget(of_other);
    EXPECT_FALSE(matching.has_unexpected(7));
    EXPECT_TRUE(matching.on(7).empty());
}

}  // namespace
}  // namespace tutti::transport
