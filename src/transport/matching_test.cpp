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

TEST(Matches, of_a_standing_receive_are_counted_apart) {
    Matching matching;
    Transfer standing = receive_of(any_source, 7);
    standing.standing = true;
    for (int turn = 0; turn < 2; ++turn) {
        matching.post(standing);
        EXPECT_TRUE(matching.stands_ready());
        EXPECT_FALSE(matching.waits_for_any()) << "no call of this rank waits for it";
        if (turn == 0)
            EXPECT_EQ(matching.take_posted(3, 7), &standing);
        else
            EXPECT_TRUE(matching.withdraw(standing));
        EXPECT_FALSE(matching.stands_ready());
    }
    matching.post(standing);
    matching.drop_all();
    EXPECT_FALSE(matching.stands_ready());
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

Transfer probe_of(int source, std::uint64_t channel, Transfer::Match match = Transfer::Match::probe) {
    Transfer transfer = receive_of(source, channel);
    transfer.match = match;
    return transfer;
}

TEST(Matches, of_probes_are_made_with_messages_that_no_receive_waits_for) {
    Matching matching;
    Transfer probe = probe_of(any_source, 7), other = probe_of(2, 7), wide = probe_of(any_source, 0x100);
    wide.channel_bits = ~std::uint64_t{0xff};
    for (Transfer* one : {&probe, &other, &wide}) matching.post(*one);
    EXPECT_TRUE(matching.waits_for_any());
    EXPECT_EQ(matching.take_posted(1, 7), nullptr) << "a probe takes no message";
    Unexpected& first = matching.keep(1, on(7));
    EXPECT_EQ(matching.take_probe(first), &probe);
    EXPECT_EQ(matching.take_probe(first), nullptr);
    EXPECT_EQ(matching.take_probe(matching.keep(1, on(0x1ff))), &wide);
    EXPECT_FALSE(matching.waits_for_any());
    EXPECT_TRUE(matching.withdraw(other));
    EXPECT_FALSE(matching.withdraw(other));
    EXPECT_EQ(matching.take_probe(matching.keep(2, on(7))), nullptr);
}

TEST(Matches, of_several_channels_are_made_in_order_of_arrival) {
    Matching matching;
    for (const std::uint64_t channel : {0x109, 0x101, 0x203, 0x105}) matching.keep(1, on(channel));
    Transfer any = probe_of(any_source, 0x100);
    any.channel_bits = ~std::uint64_t{0xff};
    for (const std::uint64_t channel : {0x109, 0x101, 0x105}) {
        Unexpected* const message = matching.find(any);
        ASSERT_NE(message, nullptr);
        EXPECT_EQ(message->frame.channel, channel);
        matching.forget(*message);
    }
    EXPECT_EQ(matching.find(any), nullptr);
}

TEST(Matches, of_claimed_messages_are_made_by_their_number_alone) {
    Matching matching;
    Unexpected& first = matching.keep(1, on(7));
    Unexpected& second = matching.keep(1, on(7));
    first.claimed = true;
    EXPECT_EQ(matching.find(receive_of(1, 7)), &second);
    EXPECT_EQ(matching.find(probe_of(1, 7)), &second);
    Transfer own = receive_of(1, 7);
    own.number = first.number;
    EXPECT_EQ(matching.find(own), &first);
    EXPECT_EQ(matching.claimed(7, first.number), &first);
    EXPECT_EQ(matching.claimed(7, 99), nullptr);
    EXPECT_EQ(matching.claimed(8, first.number), nullptr);
    first.claimed = false;
    EXPECT_EQ(matching.find(receive_of(1, 7)), &first) << "it is back at its place";
}

}  // namespace
}  // namespace tutti::transport
