// A lifeline's bytes and its end, as the system shows them.
#include "rendezvous/lifeline_socket.hpp"

#include "core/socket.hpp"

#include "support/patience.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;
using How = LineEnd::How;

// Seen by rank 0; rank 1 is process `process`, on this host or another.
Roster with(int process, bool near) {
    std::vector<Card> cards(2);
    cards[0].host_key = "a/1/1/0";
    cards[0].process = ::getpid();
    cards[1].host_key = near ? "a/1/1/0" : "b/1/1/0";
    cards[1].process = process;
    cards[1].pulse_port = 9;
    return {
        0, std::make_shared<const std::vector<Card>>(std::move(cards)), {}, 7, security::Secret::from_text("secret")};
}

std::pair<UniqueFd, UniqueFd> unix_pair() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
    return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::span<const std::byte> words() {
    static constexpr std::string_view text = "words";
    return std::as_bytes(std::span(text));
}

TEST(LifelineSockets, give_bytes_then_nothing_then_the_end) {
    auto [own, other] = unix_pair();
    const Roster roster = with(::getpid(), true);
    LifelineSocket socket({std::move(own), {}}, roster, 1, 13s);
    LifelineSocket peer({std::move(other), {}}, roster, 1, 13s);
    peer.send(words());
    std::array<std::byte, 100> into{};
    EXPECT_EQ(socket.receive(into).bytes, words().size());
    const auto nothing = socket.receive(into);
    EXPECT_TRUE(nothing.bytes == 0 && !nothing.end);
    peer.end_sending();
    EXPECT_EQ(socket.receive(into).end, How::closed);
}

TEST(LifelineSockets, see_the_end_of_a_process_of_this_host_though_the_connection_is_open) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    auto [own, other] = unix_pair();
    const Roster roster = with(child, true);
    LifelineSocket socket({std::move(own), {}}, roster, 1, 13s);
    EXPECT_FALSE(socket.has_process_ended(Clock::now()));
    ::kill(child, SIGKILL);
    const Deadline deadline = Deadline::after(test::patience(5s));
    while (!socket.has_process_ended(Clock::now()) && !deadline.expired()) ::usleep(1000);
    EXPECT_TRUE(socket.has_process_ended(Clock::now()));
    ::waitpid(child, nullptr, 0);
    std::array<std::byte, 100> into{};
    EXPECT_FALSE(socket.receive(into).end);
}

// Of a rank on another host, which went away while it was let in.
TEST(LifelineSockets, may_have_ended_before_they_are_one) {
    const UniqueFd listener = net::listen_tcp("127.0.0.1", 0);
    UniqueFd own = net::connect_tcp(net::local_address(listener.get()), Deadline::after(test::patience(1s)), nullptr);
    {
        const UniqueFd other = net::accept_one(listener.get(), Deadline::after(test::patience(1s)), nullptr, "test");
        const linger at_once{.l_onoff = 1, .l_linger = 0};
        ASSERT_EQ(::setsockopt(other.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    }
    net::wait_for(own.get(), POLLIN, Deadline::after(test::patience(1s)), nullptr, "test");
    const Roster roster = with(1, false);
    LifelineSocket socket({std::move(own), {}}, roster, 1, 13s);
    EXPECT_FALSE(socket.has_process_ended(Clock::now()));
    std::array<std::byte, 100> into{};
    EXPECT_EQ(socket.receive(into).end, How::closed);
}

}  // namespace
}  // namespace tutti::rendezvous
