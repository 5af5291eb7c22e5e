// Frames that a stream takes in pieces of any length.
#include "transport/send_queue.hpp"

#include "transport/test_stream.hpp"

#include <gtest/gtest.h>

namespace tutti::transport {
namespace {

using test::bytes_of;
using test::frame_of;
using test::numbered;
using test::PieceStream;

Transfer send_of(const std::vector<std::byte>& message) {
    Transfer send;
    send.source = message.data();
    send.bytes = message.size();
    return send;
}

TEST(FramesToSend, go_out_whole_and_in_order_however_little_the_stream_takes) {
    for (const std::size_t room : {1, 7, 55, 56, 57, 1000}) {
        const auto long_message = numbered(300), short_message = numbered(9, 50);
        Transfer first = send_of(long_message), second = send_of(short_message);
        SendQueue queue;
        queue.push(frame_of(1, 300), &first);
        queue.push(frame_of(2, 0), nullptr);
        queue.push(frame_of(3, 9), &second);
        PieceStream stream;
        stream.room = room;
        while (!queue.empty()) ASSERT_TRUE(queue.write(stream));
        auto expected = bytes_of(frame_of(1, 300), long_message);
        for (const auto& more : {bytes_of(frame_of(2, 0)), bytes_of(frame_of(3, 9), short_message)})
            expected.insert(expected.end(), more.begin(), more.end());
        EXPECT_EQ(stream.written, expected) << "in pieces of " << room;
        EXPECT_TRUE(first.done && second.done);
    }
}

TEST(FramesToSend, wait_for_a_stream_that_takes_nothing) {
    const auto message = numbered(100);
    Transfer send = send_of(message);
    SendQueue queue;
    queue.push(frame_of(1, 100), &send);
    PieceStream stream;
    stream.room = 0;
    EXPECT_FALSE(queue.write(stream));
    EXPECT_TRUE(queue.holds(send));
    EXPECT_FALSE(send.done);
}

/// Takes some bytes, and then no more.
struct StreamThatFills : PieceStream {
    explicit StreamThatFills(std::size_t bytes) { room = bytes; }
    std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) override {
        const std::size_t count = PieceStream::write(header, payload);
        room -= count;
        return count;
    }
};

TEST(FramesToSend, count_the_bytes_of_the_message_alone_and_are_done_with_the_last) {
    const auto message = numbered(100);
    Transfer send = send_of(message);
    SendQueue queue;
    queue.push(frame_of(1, 100), &send);
    StreamThatFills stream(sizeof(Frame) - 1);
    EXPECT_TRUE(queue.write(stream));
    EXPECT_EQ(send.bytes_done, 0U);
    stream.room = 1 + 99;
    EXPECT_TRUE(queue.write(stream));
    EXPECT_EQ(send.bytes_done, 99U);
    EXPECT_FALSE(send.done);
    EXPECT_TRUE(queue.holds(send));
    stream.room = 10;
    EXPECT_TRUE(queue.write(stream));
    EXPECT_TRUE(send.done);
    EXPECT_FALSE(queue.holds(send));
}

TEST(FramesToSend, go_out_a_bounded_number_of_bytes_a_turn) {
    const auto message = numbered(3 * turn_bytes);
    Transfer send = send_of(message);
    SendQueue queue;
    queue.push(frame_of(1, message.size()), &send);
    PieceStream stream;
    std::size_t before = 0;
    int turns = 0;
    for (; !queue.empty(); ++turns) {
        ASSERT_TRUE(queue.write(stream));
        EXPECT_LE(stream.written.size() - before, turn_bytes + sizeof(Frame));
        before = stream.written.size();
    }
    EXPECT_GE(turns, 3);
    EXPECT_EQ(stream.written, bytes_of(frame_of(1, message.size()), message));
}

TEST(FramesToSend, are_dropped_in_the_middle) {
    const auto message = numbered(100);
    Transfer send = send_of(message);
    SendQueue queue;
    queue.push(frame_of(1, 100), &send);
    StreamThatFills stream(80);
    EXPECT_TRUE(queue.write(stream));
    queue.clear();
    EXPECT_FALSE(queue.holds(send));
    stream.room = 1000;
    EXPECT_FALSE(queue.write(stream));
    EXPECT_EQ(stream.written.size(), 80U);
    EXPECT_FALSE(send.done);
}

}  // namespace
}  // namespace tutti::transport
