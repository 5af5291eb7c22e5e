// Two mailboxes and the streams between them, driven by turns in one thread: when a message is taken from its stream.
#include "transport/mailbox.hpp"

#include "transport/shm/neighbours.hpp"
#include "transport/shm/ring_stream.hpp"
#include "transport/test_stream.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::transport {
namespace {

// A stream that carries only bytes, as a socket does.
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

class OneStream : public Streams {
 public:
    explicit OneStream(Stream& stream) : stream_(stream) {}
    Stream* to(int) override { return &stream_; }
    Stream* existing(int) override { return &stream_; }

 private:
    Stream& stream_;
};

// The parameter: messages may go in one piece.
class MailboxTurns : public testing::TestWithParam<bool> {
 protected:
    void TearDown() override { EXPECT_FALSE(sender_.has_findings() || receiver_.has_findings()); }
    static Stream& of(RingStream& ring, OnlyBytes& bytes) { return GetParam() ? static_cast<Stream&>(ring) : bytes; }

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
    Transfer& receive(int channel, ByteSink on_bytes = {}) {
        Transfer& transfer = transfers_.emplace_back();
        transfer.peer = 0;
        transfer.channel = static_cast<std::uint64_t>(channel);
        transfer.bytes = length_;
        transfer.target = contents_.emplace_back(length_).data();
        transfer.on_bytes = on_bytes;
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
    OneStream to_receiver_{of(out_, out_bytes_)}, to_sender_{of(in_, in_bytes_)};
    Calls no_calls_;
    Mailbox sender_{0, 2, 7, to_receiver_, no_calls_}, receiver_{1, 2, 7, to_sender_, no_calls_};
    std::list<Transfer> transfers_;
    std::list<std::vector<std::byte>> contents_;
    std::thread taking_back_;
};

// A sender that runs ahead: if the mailbox had put its messages aside, the second receive would find its own at once.
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
    // The mailbox has put the others aside meanwhile.
    ASSERT_TRUE(arrived(receive(3)));
    ASSERT_TRUE(arrived(receive(2)));
}

// A probe learns of a message however it comes; a claimed one is nobody else's until it is released.
TEST_P(MailboxTurns, a_probe_describes_what_comes_and_leaves_it) {
    receiver_.activate(0);
    for (const std::size_t length : {std::size_t{0}, std::size_t{3000}, std::size_t{100} << 10, std::size_t{1} << 20}) {
        length_ = length;
        const auto look = [&](Transfer::Match match) {
            Transfer& probe = transfers_.emplace_back();
            probe.match = match;
            probe.channel = 0;
            probe.channel_bits = ~std::uint64_t{0xff};
            receiver_.post_receive(probe);
            return &probe;
        };
        const Transfer* const waiting = look(Transfer::Match::probe);
        EXPECT_FALSE(waiting->done);
        const Transfer &first = post_send(5), &second = post_send(5);
        for (int turn = 0; turn < 20 && !waiting->done; ++turn) {
            sender_.progress();
            receiver_.progress();
        }
        ASSERT_TRUE(waiting->done) << length;
        EXPECT_EQ(waiting->peer, 0);
        EXPECT_EQ(waiting->channel, 5U);
        EXPECT_EQ(waiting->bytes, length);
        const Transfer* const claim = look(Transfer::Match::claim);
        ASSERT_TRUE(claim->done);
        EXPECT_EQ(claim->number, waiting->number);
        const Transfer& later = receive(5);  // waits, or gets the second
        receiver_.release(5, claim->number);
        const Transfer& own = receive(5);
        for (int turn = 0; turn < 200 && !(own.done && later.done); ++turn) {
            sender_.progress();
            receiver_.progress();
        }
        EXPECT_TRUE(first.done && second.done) << length;
        ASSERT_TRUE(arrived(own)) << length;
        ASSERT_TRUE(arrived(later)) << length;
        const Transfer* const nothing = look(Transfer::Match::probe);
        EXPECT_FALSE(nothing->done);
        EXPECT_TRUE(receiver_.cancel_receive(transfers_.back()));
    }
}

TEST_P(MailboxTurns, a_released_message_goes_to_the_receive_that_waits) {
    Transfer claim;
    claim.match = Transfer::Match::claim;
    claim.peer = 0;
    claim.channel = 3;
    receiver_.post_receive(claim);
    send(3);
    receiver_.progress();
    ASSERT_TRUE(claim.done);
    const Transfer& waiting = receive(3);
    receiver_.progress();
    EXPECT_FALSE(waiting.done);
    receiver_.release(3, claim.number);
    ASSERT_TRUE(arrived(waiting));
    receiver_.release(3, claim.number);  // nothing is left
}

// Long enough for its payload to come in more turns than one, and one that combines.
TEST_P(MailboxTurns, what_follows_the_end_of_a_long_message_waits_too) {
    length_ = std::size_t{100} << 10;  // more than the ring holds
    const Transfer& long_one = post_send(1);
    std::size_t combined = 0;
    const auto combine = [&](std::size_t offset, std::span<const std::byte> arrived) {
        ASSERT_EQ(offset, combined);
        combined += arrived.size();
    };
    const Transfer& receive_long = receive(1, ByteSink::of(combine));
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
    const std::vector<pid_t> processes(2, ::getpid());
    Neighbours senders(0, 2, {0, 1}, processes, arena_, Reads::yes);
    const Neighbours receivers(1, 2, {0, 1}, processes, arena_, Reads::yes);
    Mailbox sender(0, 2, 7, to_receiver_, no_calls_, &senders), receiver(1, 2, 7, to_sender_, no_calls_, &receivers);
    bool take_back = false;
    length_ = std::size_t{5} << 20;  // several pieces
    Transfer sent, got;
    const std::vector<std::byte> bytes(length_, std::byte{1});
    sent.peer = 1, sent.source = bytes.data(), sent.bytes = length_;
    got.peer = 0, got.bytes = length_;
    const auto withdraw = [&](std::size_t, std::span<const std::byte>) {
        // In another thread, as from a rank of another process: it waits until this read is over.
        if (take_back && !taking_back_.joinable()) taking_back_ = std::thread([&] { senders.withdraw_offers(); });
        while (take_back && arena_->control(0).withdrawn.load() == 0) std::this_thread::yield();
    };
    got.on_bytes = ByteSink::of(withdraw);
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
    Mailbox first(0, 2, 7, to_receiver_, no_calls_), second(1, 2, 7, to_sender_, no_calls_);
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
    first.progress();  // it reads all that its peer has said by now
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
    struct Leaving : Calls {
        std::function<bool(std::uint64_t)> left;
        bool has_left(std::uint64_t channel) const override { return left(channel); }
    } leaving;
    leaving.left = [&](std::uint64_t channel) { return group(channel) == left; };
    Mailbox sender(0, 2, 7, to_receiver_, no_calls_), receiver(1, 2, 7, to_sender_, leaving);
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
    EXPECT_FALSE(sender.has_findings());
    sender.probe(1, collective_channel | 2U << 8U, 5);
    turn();
    EXPECT_FALSE(sender.has_findings());
    sender.probe(1, collective_channel | 1U << 8U, 5);
    turn();
    const std::vector<Finding> heard = sender.take_findings();
    ASSERT_EQ(heard.size(), 1U);
    EXPECT_EQ(heard.front().kind, Finding::Kind::left_group);
    EXPECT_EQ(heard.front().peer, 1);
    EXPECT_EQ(group(heard.front().channel), 1U);
}

TEST_P(MailboxTurns, an_end_comes_after_all_that_was_sent_before) {
    if (!GetParam()) GTEST_SKIP() << "by design: this stream carries bytes only, and has no end";
    Mailbox sender(0, 2, 7, to_receiver_, no_calls_);
    Transfer sent;
    const std::vector<std::byte> bytes(length_, std::byte{3});
    sent.peer = 1, sent.channel = 3, sent.source = bytes.data(), sent.bytes = length_;
    sender.post_send(sent);
    ASSERT_TRUE(sent.done);
    EXPECT_TRUE(sender.finish().empty());
    const Transfer& got = receive(3);
    EXPECT_EQ(receiver_.end_of(0), nullptr);
    while (receiver_.progress()) continue;
    EXPECT_TRUE(arrived(got));
    ASSERT_NE(receiver_.end_of(0), nullptr);
    EXPECT_EQ(receiver_.end_of(0)->broken, "");
}

TEST_P(MailboxTurns, a_message_that_does_not_fit_is_a_finding_and_nothing_moves_before_it_is_taken) {
    send(1);
    send(2);
    length_ = 10;
    const Transfer& short_one = receive(1);
    length_ = 3000;
    const Transfer& next = receive(2);
    for (int turn = 0; turn < 3; ++turn) receiver_.progress();
    const std::vector<Finding> findings = receiver_.take_findings();
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings.front().kind, Finding::Kind::mismatch);
    EXPECT_EQ(findings.front().their_bytes, 3000U);
    EXPECT_EQ(findings.front().my_bytes, 10U);
    EXPECT_FALSE(short_one.done || next.done);
}

INSTANTIATE_TEST_SUITE_P(, MailboxTurns, testing::Bool(),
                         [](const auto& each) { return each.param ? "in_one_piece" : "as_bytes"; });

class StreamOverAWay : public test::PieceStream {
 public:
    bool is_far() const noexcept override { return far; }
    bool far = false;
};

// What it writes for a message: whole, or a frame that announces it.
TEST(LongMessages, do_not_wait_for_an_answer_from_far_away_while_the_credit_lasts) {
    StreamOverAWay stream;
    OneStream streams(stream);
    const Calls no_calls;
    Mailbox mailbox(0, 2, 7, streams, no_calls);
    mailbox.activate(1);
    const std::vector<std::byte> message(Mailbox::eager_bytes_to_far + 1);
    std::deque<Transfer> sends;
    const auto written_for = [&](std::size_t bytes) {
        Transfer& send = sends.emplace_back();
        send.peer = 1;
        send.channel = sends.size();
        send.source = message.data();
        send.bytes = bytes;
        mailbox.post_send(send);
        while (mailbox.progress()) {
        }
        return std::exchange(stream.written, {}).size();
    };
    constexpr std::size_t most = Mailbox::eager_bytes_to_far;
    EXPECT_EQ(written_for(Mailbox::eager_bytes + 1), sizeof(Frame)) << "to a near peer";
    stream.far = true;
    EXPECT_EQ(written_for(most + 1), sizeof(Frame));
    EXPECT_EQ(written_for(most), sizeof(Frame) + most);
    EXPECT_EQ(written_for(most), sizeof(Frame) + most);
    EXPECT_EQ(written_for(most), sizeof(Frame)) << "the peer has not taken the two before";
}

class StreamOfCalls : public test::PieceStream {
 public:
    bool look_takes_call() const noexcept override { return true; }
};

TEST(StandingReceives, cost_calls_that_end_within_a_moment_few_looks_at_sockets) {
    StreamOfCalls stream;
    OneStream streams(stream);
    const Calls no_calls;
    Mailbox mailbox(0, 2, 7, streams, no_calls);
    mailbox.activate(1);
    Transfer standing;
    standing.channel = 9;
    standing.standing = true;
    mailbox.post_receive(standing);
    const auto take_a_message = [&] {
        Transfer receive;
        receive.peer = 1;
        receive.channel = 5;
        mailbox.post_receive(receive);
        Frame frame;
        frame.world = 7;
        frame.channel = 5;
        const auto bytes = std::as_bytes(std::span(&frame, 1));
        stream.pieces.emplace_back(bytes.begin(), bytes.end());
        ASSERT_TRUE(mailbox.progress());
        ASSERT_TRUE(receive.done);
        stream.reads = 0;
    };
    const auto reads_in = [&](int turns) {
        for (int turn = 0; turn < turns; ++turn) mailbox.progress();
        return std::exchange(stream.reads, 0);
    };
    take_a_message();
    EXPECT_LE(reads_in(15), 2);
    EXPECT_EQ(reads_in(16), 16) << "a rank that waits for longer";
    take_a_message();
    std::vector<Pollable> sockets;
    mailbox.pollables(sockets);
    EXPECT_EQ(reads_in(2), 2) << "before it sleeps, and after it";
}

// Rank 0, and the other ends of its streams to ranks 1 and 2.
class OneOfThree : public Streams, public testing::Test {
 protected:
    Stream* to(int peer) override { return &ours_[static_cast<std::size_t>(peer - 1)]; }
    Stream* existing(int peer) override { return to(peer); }

    std::array<std::shared_ptr<Arena>, 2> arenas_{Arena::create_private({.ranks = 2}),
                                                  Arena::create_private({.ranks = 2})};
    std::array<RingStream, 2> ours_{RingStream(arenas_[0], 0, 1), RingStream(arenas_[1], 0, 1)};
    std::array<RingStream, 2> theirs_{RingStream(arenas_[0], 1, 0), RingStream(arenas_[1], 1, 0)};
    Calls no_calls_;
    Mailbox mailbox_{0, 3, 7, *this, no_calls_};
};

TEST_F(OneOfThree, loses_a_rank_that_answers_a_message_to_another_rank) {
    const std::vector<std::byte> message(Mailbox::eager_bytes + 1);
    Transfer send;
    send.peer = 1;
    send.channel = 5;
    send.source = message.data();
    send.bytes = message.size();
    mailbox_.activate(2);
    mailbox_.post_send(send);
    Frame answer;
    answer.world = 7;
    answer.kind = Frame::Kind::taken;
    answer.channel = 5;
    answer.id = 1;
    ASSERT_TRUE(put_frame(theirs_[1], answer));
    mailbox_.progress();
    EXPECT_FALSE(send.done);
    ASSERT_NE(mailbox_.end_of(2), nullptr);
    EXPECT_EQ(mailbox_.end_of(2)->broken, "it sent a frame that makes no sense here");
    ASSERT_TRUE(put_frame(theirs_[0], answer));
    mailbox_.progress();
    EXPECT_TRUE(send.done);
    EXPECT_EQ(mailbox_.end_of(1), nullptr);
}

}  // namespace
}  // namespace tutti::transport
