// Two mailboxes and the streams between them, driven by turns in one thread: when a message is taken from its stream.
#include "transport/mailbox.hpp"

#include "transport/shm/offers.hpp"
#include "transport/shm/ring_stream.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <thread>
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
    void close() noexcept override {}

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
    std::thread taking_back_;
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

// A receiver may be in the middle of reading when a sender takes its memory back.
TEST_P(MailboxTurns, what_is_taken_back_while_it_is_read_is_not_received) {
    const Offers offers(arena_, 0), reader(arena_, 1);
    const PeerMemory own(::getpid());
    bool take_back = false;
    MailboxEvents from = events(out_, out_bytes_), to = events(in_, in_bytes_);
    from.memory = to.memory = [&](int) { return &own; };
    to.while_offered = [&](int peer, const std::function<void()>& read) {
        return reader.read_from(peer, [&] {
            read();
            // In another thread, as from a rank of another process: it waits until this read is over.
            if (take_back) taking_back_ = std::thread([&] { offers.withdraw([&](int) { return &own; }); });
            while (take_back && arena_->control(0).withdrawn.load() == 0) std::this_thread::yield();
        });
    };
    Mailbox sender(0, 2, 7, std::move(from)), receiver(1, 2, 7, std::move(to));
    length_ = std::size_t{5} << 20;  // several pieces
    Transfer sent, got;
    const std::vector<std::byte> bytes(length_, std::byte{1});
    std::vector<std::byte> target(length_);
    sent.peer = 1, sent.source = bytes.data(), sent.bytes = length_;
    got.peer = 0, got.target = target.data(), got.bytes = length_;
    receiver.post_receive(got);
    sender.post_send(sent);
    for (int turn = 0; turn < 100 && got.bytes_done == 0; ++turn) receiver.progress();
    ASSERT_GT(got.bytes_done, 0U);
    take_back = true;
    for (int turn = 0; turn < 100; ++turn) {
        receiver.progress();
        sender.progress();
    }
    taking_back_.join();
    EXPECT_FALSE(got.done);
    EXPECT_LT(got.bytes_done, length_);
    EXPECT_FALSE(sent.done);
}

// Long messages that wait for the other side's answer, in both directions; one rank comes second.
TEST_P(MailboxTurns, an_exchange_of_long_messages_goes_both_ways_at_once) {
    Mailbox first(0, 2, 7, events(out_, out_bytes_)), second(1, 2, 7, events(in_, in_bytes_));
    length_ = std::size_t{4} << 20;
    const std::vector<std::byte> bytes(length_, std::byte{1});
    std::array<std::vector<std::byte>, 2> targets{std::vector<std::byte>(length_), std::vector<std::byte>(length_)};
    std::array<Transfer, 2> sent, got;
    for (std::size_t r = 0; r < 2; ++r) {
        sent.at(r).peer = got.at(r).peer = 1 - static_cast<int>(r);
        sent.at(r).source = bytes.data(), got.at(r).target = targets.at(r).data();
        sent.at(r).bytes = got.at(r).bytes = length_;
    }
    first.post_receive(got[0]);
    first.post_send(sent[0]);
    second.activate(0);
    for (int turn = 0; turn < 10; ++turn) first.progress(), second.progress();
    second.post_receive(got[1]);
    first.progress();  // it reads whatever has been said by now
    second.post_send(sent[1]);
    for (int turn = 0; turn < 1000 && !got[0].done && !got[1].done; ++turn) first.progress(), second.progress();
    EXPECT_GT(got[0].bytes_done, length_ / 2);
    EXPECT_GT(got[1].bytes_done, length_ / 2);
    for (int turn = 0; turn < 1000 && !(got[0].done && got[1].done); ++turn) first.progress(), second.progress();
    EXPECT_TRUE(got[0].done && got[1].done && sent[0].done && sent[1].done);
}

TEST_P(MailboxTurns, who_has_left_refuses_what_is_announced_and_says_so_when_asked) {
    const auto group = [](std::uint64_t channel) { return (channel & ~collective_channel) >> 8; };
    std::uint64_t left = 0;  // by the receiver
    std::vector<std::pair<int, std::uint64_t>> heard;
    MailboxEvents from = events(out_, out_bytes_), to = events(in_, in_bytes_);
    to.has_left = [&](std::uint64_t channel) { return group(channel) == left; };
    from.peer_left = [&](int peer, std::uint64_t channel) { heard.emplace_back(peer, group(channel)); };
    Mailbox sender(0, 2, 7, std::move(from)), receiver(1, 2, 7, std::move(to));
    receiver.activate(0);
    sender.activate(1);
    const std::vector<std::byte> bytes(std::size_t{1} << 20);
    std::array<Transfer, 3> sends;
    const auto turn = [&] {
        for (int i = 0; i < 10; ++i) {
            receiver.progress();
            sender.progress();
        }
    };
    for (std::size_t i = 0; i < sends.size(); ++i) {
        sends.at(i).peer = 1, sends.at(i).source = bytes.data(), sends.at(i).bytes = bytes.size();
        sends.at(i).channel = (i == 1 ? 2U : 1U) << 8U;
    }
    sender.post_send(sends[0]);
    sender.post_send(sends[1]);
    turn();
    EXPECT_FALSE(sends[0].refused);
    left = 1;
    receiver.refuse_unmet();
    sender.post_send(sends[2]);
    turn();
    EXPECT_TRUE(sends[0].refused);
    EXPECT_FALSE(sends[1].refused);
    EXPECT_TRUE(sends[2].refused);
    EXPECT_TRUE(heard.empty());
    sender.probe(1, collective_channel | 2U << 8U, 5);
    turn();
    EXPECT_TRUE(heard.empty());
    sender.probe(1, collective_channel | 1U << 8U, 5);
    turn();
    EXPECT_EQ(heard, (std::vector{std::pair(1, std::uint64_t{1})}));
}

TEST_P(MailboxTurns, an_end_comes_after_all_that_was_sent_before) {
    if (!GetParam()) GTEST_SKIP() << "by design: this stream carries bytes only, and has no end";
    MailboxEvents from = events(out_, out_bytes_);
    from.open_stream = from.stream;
    Mailbox sender(0, 2, 7, std::move(from));
    Transfer sent;
    const std::vector<std::byte> bytes(length_, std::byte{3});
    sent.peer = 1, sent.channel = 3, sent.source = bytes.data(), sent.bytes = length_;
    sender.post_send(sent);
    ASSERT_TRUE(sent.done);
    EXPECT_TRUE(sender.finish().empty());
    const Transfer& got = receive(3);
    EXPECT_FALSE(receiver_.has_ended(0));
    while (receiver_.progress()) continue;
    EXPECT_TRUE(arrived(got));
    EXPECT_TRUE(receiver_.has_ended(0));
}

INSTANTIATE_TEST_SUITE_P(, MailboxTurns, testing::Bool(),
                         [](const auto& each) { return each.param ? "in_one_piece" : "as_bytes"; });

}  // namespace
}  // namespace tutti::transport
