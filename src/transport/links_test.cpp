// The rank that makes a connection, and when a peer counts as unreachable: with the test's own connector, no peers.
#include "transport/links.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <list>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::transport {
namespace {

class Socket : public Connector {
 public:
    security::Connection connect(int peer, const Deadline& /*limit*/) override {
        asked.push_back(peer);
        if (refuses) throw DistNetworkError("nobody listens there");
        return pair();
    }
    bool has_incoming() const noexcept override { return !incoming.empty(); }
    std::vector<std::pair<int, security::Connection>> take_incoming() override { return std::exchange(incoming, {}); }
    std::uint64_t next_round() const noexcept override { return rounds + 1; }
    bool is_through(std::uint64_t round) const noexcept override { return round <= rounds; }

    /// Returns the peer's end.
    UniqueFd& arrives_from(int peer) {
        incoming.emplace_back(peer, pair());
        return others_.back();
    }

    bool refuses = false;
    std::uint64_t rounds = 0;
    std::vector<int> asked;
    std::vector<std::pair<int, security::Connection>> incoming;

 private:
    security::Connection pair() {
        std::array<int, 2> ends{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
        others_.emplace_back(ends[1]);
        return {UniqueFd(ends[0]), {}};
    }
    std::list<UniqueFd> others_;
};

// Rank 1 of three, each on a host of its own.
class LinksOfRank1 : public testing::Test {
 protected:
    Neighbours alone_{1, 3, {1}, {0}, nullptr, Reads::no};
    Socket sockets_;
    Links links_{{.rank = 1,
                  .congestion = Congestion::from_environment(),
                  .lanes = Lanes::from_environment(),
                  .checksums = std::vector(3, Checksums::off),
                  .patience = std::chrono::milliseconds(100)},
                 alone_,
                 sockets_};

    /// The stream of a peer whose only connection has ended, as far as this rank has looked.
    Stream& after_the_end_of_one(int peer) {
        UniqueFd& only = sockets_.arrives_from(peer);
        links_.take_arrived();
        only.reset();
        Stream& stream = *links_.to(peer);
        EXPECT_EQ(stream.read(bytes_, {}), 0U);
        EXPECT_EQ(stream.state(), StreamState::open);
        return stream;
    }
    std::array<std::byte, 8> bytes_{};
};

// Asks again and again, as a mailbox does.
Stream* until_there(Links& links, int peer) {
    const Deadline end = Deadline::after(std::chrono::seconds(20));
    Stream* stream = nullptr;
    while (stream == nullptr && !end.expired()) stream = links.to(peer);
    return stream;
}

TEST_F(LinksOfRank1, the_lower_rank_connects_at_once) {
    EXPECT_EQ(links_.existing(2), nullptr);
    EXPECT_NE(links_.to(2), nullptr);
    EXPECT_EQ(links_.to(2), links_.existing(2));
    EXPECT_EQ(sockets_.asked, std::vector{2});
    EXPECT_TRUE(links_.is_connected(2));
    EXPECT_EQ(links_.connected().size(), 1U);
}

TEST_F(LinksOfRank1, the_higher_rank_lets_the_other_connect_and_takes_its_connection) {
    EXPECT_EQ(links_.to(0), nullptr);
    EXPECT_TRUE(sockets_.asked.empty());
    sockets_.arrives_from(0);
    EXPECT_EQ(links_.take_arrived(), std::vector{0});
    EXPECT_NE(links_.to(0), nullptr);
    EXPECT_TRUE(sockets_.asked.empty());
}

TEST_F(LinksOfRank1, the_higher_rank_connects_when_the_other_does_not) {
    EXPECT_NE(until_there(links_, 0), nullptr);
    EXPECT_EQ(sockets_.asked, std::vector{0});
}

TEST_F(LinksOfRank1, a_rank_that_refuses_is_unreachable_only_after_a_look_at_all_that_came) {
    sockets_.refuses = true;
    EXPECT_EQ(links_.to(2), nullptr);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    EXPECT_EQ(links_.to(2), nullptr);
    EXPECT_FALSE(links_.take_unreachable());
    sockets_.rounds = 1;
    EXPECT_NE(links_.to(2), nullptr);  // a stream that is closed
    EXPECT_EQ(links_.take_unreachable(), (std::pair<int, std::string>(2, "nobody listens there")));
    EXPECT_FALSE(links_.take_unreachable());
    EXPECT_EQ(sockets_.asked, std::vector{2});
}

TEST_F(LinksOfRank1, a_rank_that_refuses_may_have_connected_before_it_left) {
    sockets_.refuses = true;
    EXPECT_EQ(links_.to(2), nullptr);
    sockets_.arrives_from(2);
    sockets_.arrives_from(0);
    sockets_.rounds = 1;
    EXPECT_NE(until_there(links_, 2), nullptr);
    EXPECT_FALSE(links_.take_unreachable());
    EXPECT_TRUE(links_.is_connected(2));
    // Links reports both, though the link took them by itself.
    EXPECT_EQ(links_.take_arrived(), (std::vector{2, 0}));
}

// Both have connected, and the peer sends on its own connection, which this rank takes later.
TEST_F(LinksOfRank1, a_peer_whose_connection_has_ended_may_have_made_another_one_before_it_left) {
    Stream& stream = after_the_end_of_one(0);
    SocketTime time;
    SocketStream peer(Congestion::from_environment(), Lanes::from_environment(), Checksums::off, time);
    peer.add(std::move(sockets_.arrives_from(0)));
    EXPECT_EQ(peer.write(std::span(bytes_).first(4), {}), 4U);
    EXPECT_TRUE(peer.end());
    sockets_.rounds = 1;
    EXPECT_EQ(stream.read(bytes_, {}), 0U);
    EXPECT_EQ(stream.state(), StreamState::open) << "it has come, and is not taken yet";
    EXPECT_EQ(links_.take_arrived(), std::vector{0});
    EXPECT_EQ(stream.read(bytes_, {}), 4U);
    EXPECT_EQ(stream.read(bytes_, {}), 0U);
    EXPECT_EQ(stream.state(), StreamState::ended);
}

TEST_F(LinksOfRank1, a_peer_whose_connection_has_ended_is_gone_after_a_look_at_all_that_came) {
    Stream& stream = after_the_end_of_one(0);
    sockets_.rounds = 1;
    EXPECT_EQ(stream.read(bytes_, {}), 0U);
    EXPECT_EQ(stream.state(), StreamState::closed);
}

TEST_F(LinksOfRank1, a_peer_that_has_left_may_have_connected_before) {
    EXPECT_FALSE(links_.has_taken_all(0)) << "nobody has looked since it left";
    sockets_.arrives_from(0);
    sockets_.rounds = 1;
    EXPECT_FALSE(links_.has_taken_all(0));
    links_.take_arrived();
    EXPECT_TRUE(links_.is_connected(0));
    EXPECT_FALSE(links_.has_taken_all(2));
    sockets_.rounds = 2;
    EXPECT_TRUE(links_.has_taken_all(2));
}

TEST_F(LinksOfRank1, nothing_is_connected_any_more_once_nothing_will_be_sent) {
    EXPECT_NE(links_.to(2), nullptr);
    links_.stop_connecting();
    EXPECT_EQ(links_.to(0), nullptr);
    EXPECT_NE(links_.to(2), nullptr);
    EXPECT_EQ(sockets_.asked, std::vector{2});
}

}  // namespace
}  // namespace tutti::transport
