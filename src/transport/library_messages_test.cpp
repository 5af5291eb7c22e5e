// Long messages that a transport's library moves.
#include "transport/library_messages.hpp"

#include "transport/mailbox.hpp"
#include "transport/shm/arena.hpp"
#include "transport/shm/ring_stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

namespace tutti::transport {
namespace {

// A library that copies when it is told to, and counts the ends that have been given up.
struct CopyLibrary {
    std::map<std::uint64_t, std::span<std::byte>> receives;
    bool moves = true, fails = false;
    int under_way = 0, given_up = 0;
};

class CopyCall final : public LibraryCall {
 public:
    explicit CopyCall(CopyLibrary& library) : library_(library) { ++library_.under_way; }
    ~CopyCall() override {
        --library_.under_way;
        if (!is_over_) ++library_.given_up;
    }
    CopyCall(const CopyCall&) = delete;
    CopyCall& operator=(const CopyCall&) = delete;
    bool done() override {
        if (library_.fails) throw std::runtime_error("the library has a bad day");
        return is_over_ = library_.moves;
    }
    void pollables(std::vector<Pollable>& into) const override { into.push_back({7, false}); }

 private:
    CopyLibrary& library_;
    bool is_over_ = false;
};

class StreamWithLibrary final : public Streams {
 public:
    StreamWithLibrary(Stream& stream, CopyLibrary& library) : stream_(stream), library_(library) {}
    Stream* to(int) override { return &stream_; }
    Stream* existing(int) override { return &stream_; }
    std::unique_ptr<LibraryCall> receive(int, std::uint64_t number, std::span<std::byte> into) override {
        library_.receives[number] = into;
        return std::make_unique<CopyCall>(library_);
    }
    std::unique_ptr<LibraryCall> send(int, std::uint64_t number, std::span<const std::byte> bytes) override {
        const std::span<std::byte> into = library_.receives.at(number);  // throws where the receive has not begun
        EXPECT_EQ(into.size(), bytes.size());
        std::ranges::copy(bytes, into.begin());
        return std::make_unique<CopyCall>(library_);
    }

 private:
    Stream& stream_;
    CopyLibrary& library_;
};

class LibraryMessage : public testing::Test {
 protected:
    static constexpr std::size_t bytes = Mailbox::eager_bytes + 1;

    LibraryMessage() {
        send_.peer = 1;
        send_.source = source_.data();
        receive_.peer = 0;
        receive_.target = target_.data();
        send_.bytes = receive_.bytes = bytes;
        send_.channel = receive_.channel = 5;
    }
    ~LibraryMessage() override {
        sender_.drop_all();
        receiver_.drop_all();
        EXPECT_EQ(library_.under_way, 0);
    }
    void turn() {
        for (int i = 0; i < 20; ++i) {
            sender_.progress();
            receiver_.progress();
        }
    }

    CopyLibrary library_;
    std::shared_ptr<Arena> arena_ = Arena::create_private({.ranks = 2});
    RingStream out_{arena_, 0, 1}, in_{arena_, 1, 0};
    StreamWithLibrary to_receiver_{out_, library_}, to_sender_{in_, library_};
    Calls no_calls_;
    Mailbox sender_{0, 2, 7, to_receiver_, no_calls_}, receiver_{1, 2, 7, to_sender_, no_calls_};
    std::vector<std::byte> source_ = std::vector<std::byte>(bytes, std::byte{3}),
                           target_ = std::vector<std::byte>(bytes);
    Transfer send_, receive_;
};

TEST_F(LibraryMessage, is_moved_once_its_receive_has_begun_and_done_when_the_library_says_so) {
    library_.moves = false;
    sender_.post_send(send_);
    turn();
    EXPECT_EQ(library_.under_way, 0) << "no receive is there";
    receiver_.post_receive(receive_);
    turn();
    EXPECT_EQ(library_.under_way, 2);
    EXPECT_FALSE(send_.done || receive_.done);
    std::vector<Pollable> pollables;
    receiver_.pollables(pollables);
    EXPECT_TRUE(std::ranges::any_of(pollables, [](const Pollable& one) { return one.fd == 7; }));
    library_.moves = true;
    turn();
    EXPECT_TRUE(send_.done && receive_.done);
    EXPECT_EQ(target_, source_);
    EXPECT_EQ(library_.given_up, 0);
}

TEST_F(LibraryMessage, is_none_where_it_is_short_or_combined) {
    send_.bytes = receive_.bytes = Mailbox::eager_bytes;
    receiver_.post_receive(receive_);
    sender_.post_send(send_);
    turn();
    EXPECT_TRUE(receive_.done && library_.receives.empty());
    send_.bytes = receive_.bytes = bytes;
    std::size_t combined = 0;
    auto count = [&](std::size_t, std::span<const std::byte> some) { combined += some.size(); };
    receive_.on_bytes = ByteSink::of(count);
    receiver_.post_receive(receive_);
    sender_.post_send(send_);
    turn();
    EXPECT_TRUE(receive_.done && library_.receives.empty());
    EXPECT_EQ(combined, bytes);
}

TEST_F(LibraryMessage, that_fails_loses_its_peer_with_the_cause) {
    library_.fails = true;
    receiver_.post_receive(receive_);
    sender_.post_send(send_);
    turn();
    EXPECT_FALSE(receive_.done);
    ASSERT_NE(receiver_.end_of(0), nullptr);
    EXPECT_EQ(receiver_.end_of(0)->broken, "the library has a bad day");
}

// Its bytes come beside the stream: they may be under way when the stream's end is there.
TEST_F(LibraryMessage, that_is_under_way_outlives_the_end_of_the_stream) {
    library_.moves = false;
    receiver_.post_receive(receive_);
    sender_.post_send(send_);
    turn();
    ASSERT_EQ(library_.under_way, 2);
    out_.end();
    turn();
    EXPECT_EQ(receiver_.end_of(0), nullptr);
    library_.moves = true;
    turn();
    EXPECT_TRUE(receive_.done);
    EXPECT_NE(receiver_.end_of(0), nullptr);
}

TEST_F(LibraryMessage, that_is_cancelled_is_given_up) {
    library_.moves = false;
    receiver_.post_receive(receive_);
    sender_.post_send(send_);
    turn();
    sender_.cancel_send(send_);
    EXPECT_EQ(library_.given_up, 1);
    EXPECT_TRUE(sender_.is_over(1)) << "its peer waits for the rest";
    receiver_.drop_all();
    EXPECT_EQ(library_.given_up, 2);
}

}  // namespace
}  // namespace tutti::transport
