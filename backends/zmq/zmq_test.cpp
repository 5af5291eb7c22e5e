// The transport over ZeroMQ by itself: bytes between two ranks of one thread, with no group above them.
#include "zmq/connector.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>

namespace tutti::backends::zeromq {
namespace {

using namespace std::chrono_literals;
using transport::Stream;
using transport::StreamState;
using Bytes = std::vector<std::byte>;

std::vector<std::unique_ptr<ZmqConnector>> make_ranks(const Store& store, int size) {
    std::vector<std::unique_ptr<ZmqConnector>> ranks(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            ranks[static_cast<std::size_t>(rank)] = std::make_unique<ZmqConnector>(DistributedBackendOptions{
                .store = store, .group_rank = rank, .group_size = size, .timeout = 20s, .group_id = "test"});
        });
    }
    for (std::thread& thread : threads) thread.join();
    return ranks;
}

Bytes numbered(std::size_t count) {
    Bytes bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 1000);
    return bytes;
}

void sleep_on(const Stream& stream, bool output) {
    std::vector<transport::Pollable> pollables;
    stream.pollables(output, pollables);
    pollfd entry{pollables.at(0).fd, POLLIN, 0};
    ASSERT_GT(::poll(&entry, 1, 10'000), 0) << "nothing wakes this rank";
}

// Reads so many bytes, in pieces of two parts, and sleeps when there are none.
Bytes read(Stream& stream, std::size_t count) {
    Bytes bytes(count);
    for (std::size_t at = 0; at < count;) {
        const std::span<std::byte> rest = std::span(bytes).subspan(at),
                                   first = rest.first(std::min<std::size_t>(rest.size(), 999));
        const std::size_t got = stream.read(
            first, rest.subspan(first.size()).first(std::min<std::size_t>(rest.size() - first.size(), 100'000)));
        at += got;
        if (got == 0) sleep_on(stream, false);
    }
    return bytes;
}

void wait_until(const std::function<bool()>& true_now) {
    for (int i = 0; i < 10'000 && !true_now(); ++i) std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(true_now());
}

TEST(ZmqStream, carries_bytes_in_order_as_fast_as_they_are_read) {
    const auto ranks = make_ranks(HashStore(), 2);
    Stream &out = *ranks[0]->to(1), &in = *ranks[1]->to(0);
    EXPECT_EQ(ranks[0]->to(0), nullptr);
    EXPECT_EQ(ranks[0]->existing(1), nullptr) << "nothing has gone over it";
    const Bytes bytes = numbered(50'000'000);
    std::thread sender([&] {
        for (std::size_t at = 0; at < bytes.size();) {
            const auto rest = std::span(bytes).subspan(at);
            const std::size_t header = std::min<std::size_t>(rest.size(), 56);
            const std::size_t count = out.write(
                rest.first(header), rest.subspan(header).first(std::min<std::size_t>(rest.size() - header, 300'000)));
            at += count;
            if (count == 0) sleep_on(out, true);
        }
    });
    std::this_thread::sleep_for(200ms);  // the sender gets no further than its room
    EXPECT_EQ(read(in, bytes.size()), bytes);
    sender.join();
    EXPECT_NE(ranks[0]->existing(1), nullptr);
    EXPECT_NE(ranks[1]->existing(0), nullptr);
    EXPECT_EQ(in.state(), StreamState::open);
}

TEST(ZmqStream, keeps_no_more_than_its_room_for_a_rank_that_does_not_read) {
    const auto ranks = make_ranks(HashStore(), 2);
    Stream& out = *ranks[0]->to(1);
    const Bytes piece(100'000);
    std::size_t written = 0;
    for (int idle = 0; idle < 50;) {
        const std::size_t count = out.write(piece, piece);
        written += count;
        idle = count == 0 ? idle + 1 : 0;
        if (count == 0) std::this_thread::sleep_for(10ms);
        ASSERT_LT(written, 40'000'000U);
    }
    EXPECT_GE(written, ZmqStream::outgoing_bytes);
    out.close();
}

TEST(ZmqStream, tells_its_end_behind_its_bytes_and_knows_when_the_peer_has_them) {
    auto ranks = make_ranks(HashStore(), 3);
    Stream &out = *ranks[0]->to(1), &in = *ranks[1]->to(0);
    const Bytes bytes = numbered(300'000);
    ASSERT_EQ(out.write(bytes, {}), bytes.size());
    EXPECT_TRUE(out.end());
    wait_until([&] { return out.delivered(); });  // although rank 1 does nothing
    EXPECT_EQ(out.write(bytes, {}), 0U);
    ranks[0].reset();
    EXPECT_EQ(in.state(), StreamState::open);
    EXPECT_EQ(read(in, bytes.size()), bytes);
    EXPECT_EQ(in.state(), StreamState::ended);
    EXPECT_EQ(ranks[1]->to(2)->state(), StreamState::open);
}

TEST(ZmqStream, that_is_closed_makes_nobody_wait_for_a_peer_that_has_gone) {
    auto ranks = make_ranks(HashStore(), 2);
    Stream& out = *ranks[0]->to(1);
    ranks[1].reset();
    const Bytes bytes(500'000);
    EXPECT_GT(out.write(bytes, {}), 0U);
    out.close();
    EXPECT_EQ(out.state(), StreamState::closed);
    const auto begin = std::chrono::steady_clock::now();
    ranks[0].reset();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
}

// The peer has all that was sent to it, and says that it ends. It does not stay until it hears that its end has
// arrived.
TEST(ZmqStream, makes_nobody_wait_to_answer_a_peer_that_has_gone) {
    for (int round = 0; round < 5; ++round) {
        auto ranks = make_ranks(HashStore(), 2);
        Stream& out = *ranks[0]->to(1);
        const Bytes bytes(1000);
        EXPECT_EQ(out.write(bytes, {}), bytes.size());
        EXPECT_TRUE(out.end());
        wait_until([&] { return out.delivered(); });
        EXPECT_TRUE(ranks[1]->to(0)->end());
        ranks[1].reset();
        wait_until([&] { return out.state() == StreamState::ended; });
        const auto begin = std::chrono::steady_clock::now();
        ranks[0].reset();
        EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
    }
}

// A rank sees what a stranger with its peer's name sends: one that knows the keys, and that ZeroMQ has lost a message
// of.
TEST(ZmqStream, closes_when_a_message_is_missing_or_makes_no_sense) {
    const auto number_two = [](Header header, const std::string& bytes) {
        HashStore store;
        std::unique_ptr<ZmqConnector> rank;
        std::thread joining([&] {
            rank = std::make_unique<ZmqConnector>(DistributedBackendOptions{
                .store = store, .group_rank = 0, .group_size = 2, .timeout = 20s, .group_id = "test"});
        });
        std::array<char, 41> public_key{}, secret_key{};
        EXPECT_EQ(zmq_curve_keypair(public_key.data(), secret_key.data()), 0);
        store.set("rank/1", std::string("tcp://127.0.0.1:1 ") + public_key.data());
        joining.join();
        const std::string card = store.get("rank/0");
        zmq::context_t context;
        zmq::socket_t peer(context, zmq::socket_type::dealer);
        peer.set(zmq::sockopt::routing_id, "1");
        peer.set(zmq::sockopt::curve_serverkey, card.substr(card.find(' ') + 1));
        peer.set(zmq::sockopt::curve_publickey, std::string(public_key.data()));
        peer.set(zmq::sockopt::curve_secretkey, std::string(secret_key.data()));
        peer.connect(card.substr(0, card.find(' ')));
        const auto send = [&](const Header& h, const std::string& text) {
            peer.send(zmq::const_buffer(&h, sizeof h), zmq::send_flags::sndmore);
            peer.send(zmq::buffer(text), zmq::send_flags::none);
        };
        send({.number = 0}, "good");
        send(header, bytes);
        Stream& stream = *rank->to(1);
        EXPECT_EQ(read(stream, 4).size(), 4U);
        wait_until([&] { return stream.state() == StreamState::closed; });
        const std::string reason = stream.reason();
        stream.close();
        return reason;
    };
    EXPECT_EQ(number_two({.number = 2}, "later"), "ZeroMQ has lost a message, with a connection that broke");
    EXPECT_EQ(number_two({.number = 1}, ""), "it sent something that is not a part of its stream");
    EXPECT_EQ(number_two({.kind = static_cast<Header::Kind>(9), .number = 1}, "x"),
              "it sent something that is not a part of its stream");
}

}  // namespace
}  // namespace tutti::backends::zeromq
