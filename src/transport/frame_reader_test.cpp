// Frames that come in pieces of any length.
#include "transport/frame_reader.hpp"

#include "transport/test_stream.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

namespace tutti::transport {
namespace {

using test::bytes_of;
using test::frame_of;
using test::numbered;
using test::PieceStream;

class FramesRead : public testing::Test {
 protected:
    void comes(std::vector<std::byte> bytes) { stream_.pieces.push_back(std::move(bytes)); }
    bool turn_finds_header() {
        reader_.begin_turn();
        return reader_.look_for_header(stream_);
    }
    Transfer& receive_of(std::size_t bytes) {
        target_.assign(bytes, std::byte{0});
        receive_ = {};
        receive_.target = target_.data();
        receive_.bytes = bytes;
        return receive_;
    }
    // Reads what a turn brings of the payload.
    void read_payload(std::size_t most = SIZE_MAX) {
        reader_.begin_turn();
        while (!reader_.has_whole_payload() && reader_.read_payload(stream_, most, bounce_) > 0) {
        }
    }

    PieceStream stream_;
    FrameReader reader_;
    Bounce bounce_;
    std::vector<std::byte> target_;
    Transfer receive_;
};

TEST_F(FramesRead, have_a_header_when_all_of_its_bytes_have_come) {
    const auto all = bytes_of(frame_of(9, 0));
    const auto half = all.begin() + 20;
    comes({all.begin(), half});
    EXPECT_FALSE(turn_finds_header());
    EXPECT_TRUE(reader_.is_within_frame()) << "a stream that ended now would have broken off";
    const int reads = stream_.reads;
    comes({half, all.end()});
    EXPECT_FALSE(reader_.look_for_header(stream_)) << "the stream was empty in this turn";
    EXPECT_EQ(stream_.reads, reads);
    EXPECT_TRUE(turn_finds_header());
    EXPECT_EQ(reader_.header().channel, 9U);
    reader_.pass_header();
    EXPECT_FALSE(reader_.is_within_frame());
}

TEST_F(FramesRead, of_short_messages_come_several_in_one_read_and_in_order) {
    std::vector<std::byte> together;
    for (const std::size_t length : {5, 0, 30}) {
        const auto one = bytes_of(frame_of(length, length), numbered(length, length));
        together.insert(together.end(), one.begin(), one.end());
    }
    comes(together);
    reader_.begin_turn();
    for (const std::size_t length : {5, 0, 30}) {
        ASSERT_TRUE(reader_.look_for_header(stream_));
        EXPECT_EQ(reader_.header().channel, length);
        reader_.pass_header();
        reader_.begin_payload(receive_of(length));
        while (!reader_.has_whole_payload()) ASSERT_GT(reader_.read_payload(stream_, SIZE_MAX, bounce_), 0U);
        reader_.end_payload();
        EXPECT_EQ(target_, numbered(length, length));
    }
    EXPECT_EQ(stream_.reads, 1);
    EXPECT_FALSE(reader_.is_within_frame());
}

TEST_F(FramesRead, have_payloads_in_pieces_and_the_next_header_behind_them) {
    constexpr std::size_t length = 5000;
    const auto message = numbered(length);
    auto all = bytes_of(frame_of(1, length), message);
    const auto next = bytes_of(frame_of(2, 0));
    all.insert(all.end(), next.begin(), next.end());
    for (std::size_t at = 0; at < all.size(); at += 777) {
        const auto from = all.begin() + static_cast<std::ptrdiff_t>(at);
        comes({from, from + std::min<std::ptrdiff_t>(777, all.end() - from)});
    }
    ASSERT_TRUE(turn_finds_header());
    reader_.pass_header();
    reader_.begin_payload(receive_of(length));
    std::size_t before = 0;
    while (!reader_.has_whole_payload()) {
        read_payload();
        ASSERT_GT(receive_.bytes_done, before) << "each turn brings a piece";
        ASSERT_TRUE(reader_.is_within_frame());
        before = receive_.bytes_done;
    }
    reader_.end_payload();
    EXPECT_EQ(target_, message);
    EXPECT_TRUE(turn_finds_header());
    EXPECT_EQ(reader_.header().channel, 2U);
}

TEST_F(FramesRead, give_no_more_of_a_payload_than_is_asked_for) {
    comes(bytes_of(frame_of(1, 300), numbered(300)));
    ASSERT_TRUE(turn_finds_header());
    reader_.pass_header();
    reader_.begin_payload(receive_of(300));
    EXPECT_EQ(reader_.read_payload(stream_, 100, bounce_), 100U);
    EXPECT_EQ(receive_.bytes_done, 100U);
    EXPECT_EQ(target_[100], std::byte{0}) << "of the rest nothing";
    EXPECT_EQ(reader_.read_payload(stream_, SIZE_MAX, bounce_), 200U);
    EXPECT_EQ(target_, numbered(300));
}

TEST_F(FramesRead, fill_a_message_that_waits_for_its_receive) {
    comes(bytes_of(frame_of(1, 40), numbered(40)));
    ASSERT_TRUE(turn_finds_header());
    reader_.pass_header();
    Unexpected message;
    message.frame = reader_.header();
    message.bytes = SpareMemory().take(40);
    reader_.begin_payload(message);
    read_payload();
    EXPECT_EQ(std::memcmp(message.message().data(), numbered(40).data(), 40), 0);
}

TEST_F(FramesRead, combine_whole_elements_wherever_the_pieces_are_cut) {
    constexpr std::size_t element = 8, length = 25 * element;
    const auto message = numbered(length);
    auto all = bytes_of(frame_of(1, length), message);
    comes({all.begin(), all.begin() + sizeof(Frame)});
    for (std::size_t at = sizeof(Frame); at < all.size(); at += 3) {
        const auto from = all.begin() + static_cast<std::ptrdiff_t>(at);
        comes({from, from + std::min<std::ptrdiff_t>(3, all.end() - from)});
    }
    std::vector<std::byte> got;
    Transfer& receive = receive_of(length);
    receive.element_bytes = element;
    const auto append = [&](std::size_t offset, std::span<const std::byte> bytes) {
        ASSERT_EQ(offset, got.size());
        ASSERT_EQ(bytes.size() % element, 0U);
        got.insert(got.end(), bytes.begin(), bytes.end());
    };
    receive.on_bytes = ByteSink::of(append);
    ASSERT_TRUE(turn_finds_header());
    reader_.pass_header();
    reader_.begin_payload(receive);
    while (!reader_.has_whole_payload()) read_payload();
    EXPECT_EQ(got, message);
}

TEST_F(FramesRead, keep_nothing_of_an_element_for_the_next_message) {
    const auto message = numbered(8, 100);
    comes(bytes_of(frame_of(1, 3), numbered(3)));
    comes(bytes_of(frame_of(2, 8), message));
    std::vector<std::byte> got;
    const auto append = [&](std::size_t, std::span<const std::byte> b) { got.insert(got.end(), b.begin(), b.end()); };
    for (const std::size_t length : {3, 8}) {
        ASSERT_TRUE(turn_finds_header());
        reader_.pass_header();
        Transfer& receive = receive_of(length);
        receive.element_bytes = 8;
        receive.on_bytes = ByteSink::of(append);
        reader_.begin_payload(receive);
        read_payload();
        reader_.end_payload();
    }
    EXPECT_EQ(got, message);
}

}  // namespace
}  // namespace tutti::transport
