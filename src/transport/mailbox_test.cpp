// Two mailboxes and the streams between them, driven by turns in one thread: when a message is taken from its stream.
#include "transport/mailbox.hpp"

#include "transport/shm/ring_stream.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::transport {
namespace {

// What carries bytes only, as a socket does.
class OnlyBytes : public Stream {
 public:
    explicit OnlyBytes(RingStream& ring) : ring_(ring) {}
    std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) override {
        return ring_.write(header, payload);
    }
    std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) override { return ring_.read(into, ahead); }
    StreamState state() const noexcept override { return StreamState::open; }
    std::string reason() const override { return ""; }

 private:
    RingStream& ring_;
};

// The parameter: messages may go in one piece.
class MailboxTurns : public testing::TestWithParam<bool> {
 protected:
    MailboxEvents events(RingStream& ring, OnlyBytes& bytes) {
        MailboxEvents events;
        events.stream = [&](int) { return GetParam() ? static_cast<Stream*>(&ring) : &bytes; };
        events.mismatch = [](int, std::uint64_t channel, auto, auto, auto, auto) {
            ADD_FAILURE() << "a mismatch on channel " << channel;
        };
        events.lost = [](int, const std::string& reason) { ADD_FAILURE() << reason; };
        events.fingerprint_of = [](std::uint64_t) { return std::uint64_t{0}; };
        return events;
    }

    // A message of `length_` bytes, each of which is the channel's number.
    Transfer& post_send(int channel) {
        Transfer& transfer = transfers_.emplace_back();
        std::vector<std::byte>& bytes = contents_.emplace_back(length_, static_cast<std::byte>(channel));
        transfer.peer = 1;
        transfer.channel = static_cast<std::uint64_t>(channel);
        transfer.source = bytes.data();
        transfer.bytes = bytes.size();
        sender_.post_send(transfer);
        return transfer;
    }
    void send(int channel) { ASSERT_TRUE(post_send(channel).done); }
    Transfer& receive(int channel, std::function<void(std::size_t, std::span<const std::byte>)> absorb = {}) {
        Transfer& transfer = transfers_.emplace_back();
        transfer.peer = 0;
        transfer.channel = static_cast<std::uint64_t>(channel);
        transfer.bytes = length_;
        transfer.target = contents_.emplace_back(length_).data();
        transfer.absorb = std::move(absorb);
        receiver_.post_receive(transfer);
        return transfer;
    }
    static testing::AssertionResult arrived(const Transfer& transfer) {
        if (!transfer.done) return testing::AssertionFailure() << "not yet";
        for (std::size_t i = 0; i < transfer.bytes; ++i) {
            if (transfer.target[i] != static_cast<std::byte>(transfer.channel))
                return testing::AssertionFailure() << "byte " << i << " is wrong";
        }
        return testing::AssertionSuccess();
    }

    std::size_t length_ = 3000;  // more than is read ahead with a header
    std::shared_ptr<Arena> arena_ = Arena::create_private({.ranks = 2});
    RingStream out_{arena_, 0, 1}, in_{arena_, 1, 0};
    OnlyBytes out_bytes_{out_}, in_bytes_{in_};
    Mailbox sender_{0, 2, 7, events(out_, out_bytes_)}, receiver_{1, 2, 7, events(in_, in_bytes_)};
    std::list<Transfer> transfers_;
    std::list<std::vector<std::byte>> contents_;
};

// A sender that runs ahead: had its messages been put aside, the second receive would find its own at once.
TEST_P(MailboxTurns, what_comes_before_its_receive_waits_in_the_stream_while_others_are_filled) {
    for (int channel = 1; channel <= 5; ++channel) send(channel);
    for (int channel = 1; channel <= 5; ++channel) {
        const Transfer& transfer = receive(channel);
        ASSERT_FALSE(transfer.done) << "message " << channel << " had been copied into memory of its own";
        ASSERT_TRUE(receiver_.progress());
        ASSERT_TRUE(arrived(transfer)) << "message " << channel;
    }
}

TEST_P(MailboxTurns, what_no_receive_waits_for_keeps_back_nothing_behind_it) {
    for (int channel = 1; channel <= 4; ++channel) send(channel);
    const Transfer &first = receive(1), &last = receive(4);
    ASSERT_TRUE(receiver_.progress());
    ASSERT_TRUE(arrived(first));
    ASSERT_FALSE(last.done);
    ASSERT_TRUE(receiver_.progress());
    ASSERT_TRUE(arrived(last));
    // The others were put aside meanwhile.
    ASSERT_TRUE(arrived(receive(3)));
    ASSERT_TRUE(arrived(receive(2)));
}

// Long enough for its payload to come in more turns than one, and one that combines.
TEST_P(MailboxTurns, what_follows_the_end_of_a_long_message_waits_too) {
    length_ = std::size_t{100} << 10;  // beyond what the ring holds
    const Transfer& long_one = post_send(1);
    std::size_t combined = 0;
    const Transfer& receive_long = receive(1, [&](std::size_t offset, std::span<const std::byte> arrived) {
        ASSERT_EQ(offset, combined);
        combined += arrived.size();
    });
    bool second_sent = false;
    for (int turn = 0; turn < 20 && !receive_long.done; ++turn) {
        sender_.progress();
        if (long_one.done && !std::exchange(second_sent, true)) {
            length_ = 3000;
            send(2);
        }
        receiver_.progress();
    }
    ASSERT_TRUE(receive_long.done);
    ASSERT_EQ(combined, receive_long.bytes);
    ASSERT_TRUE(second_sent);
    const Transfer& second = receive(2);
    ASSERT_FALSE(second.done);
    ASSERT_TRUE(receiver_.progress());
    ASSERT_TRUE(arrived(second));
}

INSTANTIATE_TEST_SUITE_P(, MailboxTurns, testing::Bool(),
                         [](const auto& each) { return each.param ? "in_one_piece" : "as_bytes"; });

}  // namespace
}  // namespace tutti::transport
