#include "core/socket.hpp"
#include "core/unix_socket.hpp"

#include "support/message_of.hpp"
#include "support/patience.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <tutti/error.hpp>

#include <array>
#include <numeric>
#include <thread>
#include <vector>

namespace tutti::net {
namespace {

using test::message_of;
using namespace std::chrono_literals;

Deadline soon() {
    return Deadline::after(10s);
}

struct Pair {
    UniqueFd client;
    UniqueFd server;
};

Pair tcp_pair(const std::string& host = "127.0.0.1") {
    const UniqueFd listener = listen_tcp(host, 0);
    Pair pair;
    pair.client = connect_tcp({host, local_address(listener.get()).port}, soon(), nullptr);
    pair.server = accept_one(listener.get(), soon(), nullptr, "accept");
    return pair;
}

void expect_good_descriptor(int fd) {
    EXPECT_TRUE((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    EXPECT_TRUE((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
}

TEST(Socket, connects_to_a_listener_and_both_ends_are_non_blocking_close_on_exec_and_undelayed) {
    const Pair pair = tcp_pair();
    for (const int fd : {pair.client.get(), pair.server.get()}) {
        expect_good_descriptor(fd);
        int on = 0;
        socklen_t size = sizeof on;
        ASSERT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
        EXPECT_NE(on, 0);
    }
    EXPECT_EQ(local_address(pair.client.get()), peer_address(pair.server.get()));
    EXPECT_EQ(local_address(pair.client.get()).host, "127.0.0.1");
}

TEST(Socket, reaches_a_listener_by_name) {
    const UniqueFd listener = listen_tcp("localhost", 0);
    EXPECT_TRUE(connect_tcp({"localhost", local_address(listener.get()).port}, soon(), nullptr));
}

TEST(Socket, that_listens_everywhere_is_reached_at_every_address_of_both_families) {
    const UniqueFd listener = listen_tcp("", 0);
    const std::uint16_t port = local_address(listener.get()).port;
    EXPECT_TRUE(connect_tcp({"127.0.0.1", port}, soon(), nullptr));
    EXPECT_TRUE(connect_tcp({"127.9.9.9", port}, soon(), nullptr));
    if (is_of_this_host("::1")) {
        EXPECT_TRUE(connect_tcp({"::1", port}, soon(), nullptr));
    }
    const std::string text = message_of<DistNetworkError>([&] { (void)listen_tcp("", port); });
    EXPECT_NE(text.find(fmt::format("port {} of every address", port)), std::string::npos) << text;
    EXPECT_NE(text.find("in use"), std::string::npos) << text;
}

TEST(Socket, tells_which_addresses_are_this_hosts_and_by_which_one_its_traffic_leaves) {
    for (const char* host : {"127.0.0.1", "127.9.9.9", "localhost", "0.0.0.0"})
        EXPECT_TRUE(is_of_this_host(host)) << host;
    EXPECT_FALSE(is_of_this_host("192.0.2.1"));
    EXPECT_NE(message_of<DistNetworkError>([] { (void)is_of_this_host("no-such-host.invalid"); }).find("no-such-host"),
              std::string::npos);
    EXPECT_EQ(address_towards("127.9.9.9"), "127.0.0.1");
    EXPECT_EQ(address_towards("no-such-host.invalid"), "");
}

TEST(Socket, a_port_in_use_names_the_port_the_cause_and_what_to_do) {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const std::uint16_t port = local_address(listener.get()).port;
    const std::string text = message_of<DistNetworkError>([&] { (void)listen_tcp("127.0.0.1", port); });
    EXPECT_NE(text.find("127.0.0.1:" + std::to_string(port)), std::string::npos) << text;
    EXPECT_NE(text.find("another job may be using it"), std::string::npos) << text;
}

TEST(Socket, a_connect_waits_for_a_listener_that_comes_later) {
    UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const std::uint16_t port = local_address(listener.get()).port;
    listener.reset();
    std::thread late([&] {
        std::this_thread::sleep_for(100ms);
        listener = listen_tcp("127.0.0.1", port);
    });
    const UniqueFd client = connect_tcp({"127.0.0.1", port}, soon(), nullptr);
    late.join();
    EXPECT_TRUE(client);
}

TEST(Socket, a_refused_connect_ends_at_its_deadline_and_says_where_why_and_how_long) {
    UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const Address nobody{"127.0.0.1", local_address(listener.get()).port};
    listener.reset();
    const Instant start = Clock::now();
    const std::string text =
        message_of<DistNetworkError>([&] { (void)connect_tcp(nobody, Deadline::after(100ms), nullptr); });
    EXPECT_LT(Clock::now() - start, test::patience(2s));
    EXPECT_NE(text.find(to_string(nobody)), std::string::npos) << text;
    EXPECT_NE(text.find("refused"), std::string::npos) << text;
    EXPECT_NE(text.find("tried for 0."), std::string::npos) << text;
}

TEST(Socket, an_abort_ends_a_connect_and_a_receive) {
    UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const Address nobody{"127.0.0.1", local_address(listener.get()).port};
    listener.reset();
    AbortFlag abort;
    std::thread other([&] {
        std::this_thread::sleep_for(50ms);
        abort.raise("enough");
    });
    const Instant start = Clock::now();
    const std::string text = message_of<Aborted>([&] { (void)connect_tcp(nobody, soon(), &abort); });
    other.join();
    EXPECT_NE(text.find("enough"), std::string::npos) << text;
    const Pair pair = tcp_pair();
    std::array<std::byte, 1> byte;
    EXPECT_THROW(recv_all(pair.client.get(), byte, soon(), &abort, "test"), Aborted);
    EXPECT_LT(Clock::now() - start, test::patience(5s));
}

TEST(Socket, moves_more_than_the_kernel_buffers_hold_and_notices_the_end) {
    Pair pair = tcp_pair();
    std::vector<std::byte> out(std::size_t{12} << 20U);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 7);
    std::thread sender([&] {
        send_all(pair.server.get(), out, soon(), nullptr, "test");
        pair.server.reset();
    });
    std::vector<std::byte> in(out.size());
    recv_all(pair.client.get(), in, soon(), nullptr, "test");
    sender.join();
    EXPECT_TRUE(in == out);
    std::array<std::byte, 1> byte;
    const std::string text =
        message_of<DistNetworkError>([&] { recv_all(pair.client.get(), byte, soon(), nullptr, "the test"); });
    EXPECT_EQ(text, "the test: connection closed by peer");
    // SIGPIPE would end the test here.
    EXPECT_THROW(
        while (true) { send_all(pair.client.get(), out, soon(), nullptr, "test"); }, DistNetworkError);
}

TEST(Socket, a_silent_peer_ends_a_receive_at_the_deadline) {
    const Pair pair = tcp_pair();
    std::array<std::byte, 1> byte;
    EXPECT_THROW(recv_all(pair.client.get(), byte, Deadline::after(60ms), nullptr, "test"), Timeout);
}

TEST(Socket, sends_datagrams_to_an_abstract_unix_socket) {
    const std::string name = "tutti-datagrams-" + std::to_string(::getpid());
    EXPECT_FALSE(send_unix_datagram(name, "nobody is there"));
    const UniqueFd reader = bind_unix_datagrams(name);
    EXPECT_THROW((void)bind_unix_datagrams(name), DistNetworkError);
    EXPECT_FALSE(take_unix_datagram(reader.get()));
    const std::string long_one(60'000, 'x');
    EXPECT_TRUE(send_unix_datagram(name, long_one));
    EXPECT_TRUE(send_unix_datagram(name, ""));
    EXPECT_EQ(take_unix_datagram(reader.get()), long_one);
    EXPECT_EQ(take_unix_datagram(reader.get()), "");
    int sent = 0;
    while (sent < 100'000 && send_unix_datagram(name, "x")) ++sent;
    EXPECT_LT(sent, 100'000) << "it does not wait for a reader";
    while (take_unix_datagram(reader.get())) --sent;
    EXPECT_EQ(sent, 0);
}

TEST(Socket, hands_a_descriptor_over_an_abstract_unix_socket_and_knows_the_peer) {
    const std::string name = "tutti-socket-test-" + std::to_string(getpid());
    const UniqueFd listener = listen_unix(name);
    const UniqueFd client = connect_unix(name, soon(), nullptr);
    const UniqueFd server = accept_one(listener.get(), soon(), nullptr, "accept");
    EXPECT_EQ(peer_uid(server.get()), getuid());
    EXPECT_EQ(peer_pid(client.get()), getpid());
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    const UniqueFd reader(ends[0]);
    UniqueFd writer(ends[1]);
    send_fd(client.get(), writer.get(), soon(), nullptr);
    const UniqueFd received = recv_fd(server.get(), soon(), nullptr);
    EXPECT_TRUE((fcntl(received.get(), F_GETFD) & FD_CLOEXEC) != 0);
    ASSERT_EQ(write(received.get(), "x", 1), 1);
    char got = 0;
    ASSERT_EQ(read(reader.get(), &got, 1), 1);
    EXPECT_EQ(got, 'x');
    const std::array plain{std::byte{1}};
    send_all(client.get(), plain, soon(), nullptr, "test");
    EXPECT_THROW((void)recv_fd(server.get(), soon(), nullptr), DistNetworkError);
    EXPECT_THROW((void)listen_unix(name), DistNetworkError);
    EXPECT_THROW((void)listen_unix(std::string(200, 'x')), InvalidArgument);
}

TEST(Socket, tells_loopback_and_multicast_addresses) {
    for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"}) EXPECT_TRUE(is_loopback(host)) << host;
    for (const char* host : {"10.0.0.1", "0.0.0.0", "::", "fe80::1", "", "no.such.host.invalid"}) {
        EXPECT_FALSE(is_loopback(host)) << host;
    }
    for (const char* host : {"224.0.0.1", "239.255.1.1", "ff02::1"}) EXPECT_TRUE(is_multicast(host)) << host;
    for (const char* host : {"223.255.255.255", "240.0.0.1", "::1", "host"}) EXPECT_FALSE(is_multicast(host)) << host;
    EXPECT_EQ(to_string({"::1", 5}), "[::1]:5");
    for (const Address& address : {Address{"::1", 5}, Address{"10.0.0.1", 29500}, Address{"node0.local", 1}})
        EXPECT_EQ(net::to_address(to_string(address)), address);
    for (const char* wrong :
         {"", ":", "node0", "node0:", ":5", "::1:5", "[]:5", "[::1]", "node0:0", "node0:65536", "node0:5 "})
        EXPECT_EQ(net::to_address(wrong), std::nullopt) << wrong;
}

TEST(Socket, tells_the_round_trip_of_tcp_alone) {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const UniqueFd client = connect_tcp(local_address(listener.get()), soon(), nullptr);
    const auto seen = round_trip(client.get());
    ASSERT_TRUE(seen.has_value());
    EXPECT_GT(seen->count(), 0);
    EXPECT_LT(*seen, 1s);
    std::array<int, 2> pair{-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
    const UniqueFd one(pair[0]), other(pair[1]);
    EXPECT_EQ(round_trip(one.get()), std::nullopt);
}

TEST(Socket, a_name_that_does_not_exist_fails_at_the_deadline) {
    const std::string text = message_of<DistNetworkError>([] {
        (void)connect_tcp({"no.such.host.invalid", 1}, Deadline::after(1s), nullptr);
    });
    EXPECT_NE(text.find("no.such.host.invalid:1"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::net
