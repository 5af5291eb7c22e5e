// TLS on sockets: the peers that an entrance lets in, and the bytes that a wire carries.
#include "security/wire.hpp"

#include "core/socket.hpp"
#include "security/entrance.hpp"
#include "security/tls_test_support.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::security::tls_tests {
namespace {

TEST(Entrance, lets_in_who_comes_by_tls_and_who_comes_by_the_handshake) {
    const auto admits = [](std::string_view named) { return named == identity; };
    Entrance by_tls(the_secret(), "test", admits, Entrance::Ways::tls_alone),
        by_handshake(the_secret(), "test", admits, Entrance::Ways::both);
    const auto tls = Tls::connecting(the_secret(), std::string(identity));
    Handshake handshake(the_secret(), Role::connecting, "test");
    for (int i = 0; i < 4; ++i) {
        (void)by_tls.consume(take_output(*tls));
        give(*tls, by_tls.output());
        by_tls.sent(by_tls.output().size());
        const Bytes words(handshake.output().begin(), handshake.output().end());
        handshake.sent(words.size());
        EXPECT_EQ(by_handshake.consume(words), words.size());
        (void)handshake.consume(by_handshake.output());
        by_handshake.sent(by_handshake.output().size());
    }
    EXPECT_EQ(by_tls.state(), Entrance::State::done);
    EXPECT_NE(by_tls.take_tls(), nullptr);
    EXPECT_EQ(by_handshake.state(), Entrance::State::done);
    EXPECT_EQ(by_handshake.take_tls(), nullptr);
}

TEST(Entrance, a_stranger_is_refused_at_its_first_bytes) {
    Entrance entrance(
        the_secret(), "test", [](std::string_view) { return true; }, Entrance::Ways::both);
    (void)entrance.consume(bytes_of("GET / HTTP/1.1\r\n"));
    EXPECT_EQ(entrance.state(), Entrance::State::failed);
    Entrance other(
        the_secret(), "test", [](std::string_view) { return true; }, Entrance::Ways::both);
    const std::byte nonsense[] = {std::byte{22}, std::byte{3}, std::byte{3}, std::byte{255}, std::byte{255}};
    (void)other.consume(nonsense);
    EXPECT_EQ(other.state(), Entrance::State::failed);
}

TEST(Entrance, that_takes_tls_alone_answers_others_with_an_alert_which_they_understand) {
    Entrance entrance(
        the_secret(), "test", [](std::string_view) { return true; }, Entrance::Ways::tls_alone);
    Handshake handshake(the_secret(), Role::connecting, "test");
    (void)entrance.consume(handshake.output());
    handshake.sent(handshake.output().size());
    EXPECT_EQ(entrance.state(), Entrance::State::failed);
    EXPECT_TRUE(entrance.lacks_tls());
    EXPECT_TRUE(std::ranges::equal(entrance.output(), Tls::refusal()));
    (void)handshake.consume(entrance.output());
    EXPECT_EQ(handshake.state(), Handshake::State::failed);
    EXPECT_TRUE(handshake.wants_tls());
    entrance.sent(entrance.output().size());
    EXPECT_TRUE(entrance.output().empty());
    EXPECT_EQ(entrance.consume(bytes_of("more")), 0U);
}

struct Sockets {
    explicit Sockets(int buffer_bytes = 0) {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
        client.reset(ends[0]);
        server.reset(ends[1]);
        for (const int fd : ends) {
            if (buffer_bytes != 0) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
        }
    }
    UniqueFd client, server;
};

Wire let_in(int fd) {
    Entrance entrance(
        the_secret(), "test", [](std::string_view named) { return named == identity; }, Entrance::Ways::both);
    std::array<std::byte, 4096> buffer;
    while (entrance.state() == Entrance::State::needs_more) {
        net::wait_for(fd, POLLIN, soon(), nullptr, "test");
        const ssize_t got = ::recv(fd, buffer.data(), std::min(buffer.size(), entrance.wanted()), 0);
        if (got <= 0) break;
        (void)entrance.consume(std::span(buffer).first(static_cast<std::size_t>(got)));
        net::send_all(fd, entrance.output(), soon(), nullptr, "test");
        entrance.sent(entrance.output().size());
    }
    return Wire(entrance.take_tls());
}

struct Wires {
    explicit Wires(Sockets& sockets) {
        std::thread other([&] { server = let_in(sockets.server.get()); });
        client = secure(sockets.client.get(), the_secret(), std::string(identity), soon(), nullptr);
        other.join();
    }
    Wire client, server;
};

std::byte byte_at(std::size_t at) {
    return static_cast<std::byte>((at * 2654435761U) >> 13U);
}

// Each end writes pieces of all sizes, as far as the kernel takes them, and reads into rooms of all sizes.
TEST(Wire, carries_all_bytes_both_ways_at_once_whatever_the_kernel_takes) {
    constexpr std::size_t bytes = 6'000'000;
    for (const int buffer : {4'000, 70'000, 0}) {
        Sockets sockets(buffer);
        Wires wires(sockets);
        ASSERT_TRUE(wires.client.is_encrypted() && wires.server.is_encrypted());
        Bytes whole(bytes);
        for (std::size_t i = 0; i < bytes; ++i) whole[i] = byte_at(i);
        const auto run = [&](Wire& wire, int fd, unsigned seed, Bytes& got) {
            std::mt19937 random(seed);
            std::size_t sent = 0, shown = 0;  // some of the bytes shown may not be counted yet
            Bytes room(300'000);
            while (sent < bytes || got.size() < bytes) {
                bool moved = false;
                if (sent < bytes) {
                    if (!wire.has_begun()) shown = std::min(bytes, sent + 1 + random() % 400'000);
                    const std::size_t middle = sent + random() % (shown - sent + 1);
                    const iovec parts[] = {{whole.data() + sent, middle - sent},
                                           {whole.data() + middle, shown - middle}};
                    const ssize_t count = wire.send(fd, parts);
                    if (count < 0 && errno != EAGAIN) return ADD_FAILURE() << errno << wire.error();
                    sent += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
                    moved = count > 0;
                }
                const auto into = std::span(room).first(1 + random() % room.size());
                const ssize_t count = wire.receive(fd, into);
                if (count == 0 || (count < 0 && errno != EAGAIN)) return ADD_FAILURE() << errno << wire.error();
                if (count > 0) got.insert(got.end(), into.begin(), into.begin() + count);
                if (moved || count > 0) continue;
                pollfd entries[] = {{wire.to_poll(fd), POLLIN, 0}, {fd, POLLOUT, 0}};
                ASSERT_GT(::poll(entries, sent < bytes ? 2 : 1, 5'000), 0) << "nothing tells that it goes on";
            }
        };
        Bytes by_client, by_server;
        std::thread other([&] { run(wires.server, sockets.server.get(), 1, by_server); });
        run(wires.client, sockets.client.get(), 2, by_client);
        other.join();
        EXPECT_TRUE(by_client == whole && by_server == whole) << by_client.size() << " " << by_server.size();
    }
}

TEST(Wire, says_of_bytes_that_it_holds_already_that_they_can_be_read) {
    Sockets sockets;
    Wires wires(sockets);
    wires.client.send_all(sockets.client.get(), bytes_of("many words"), soon(), nullptr, "test");
    std::array<std::byte, 4> room;
    net::wait_for(sockets.server.get(), POLLIN, soon(), nullptr, "test");
    ASSERT_EQ(wires.server.receive(sockets.server.get(), room), 4);
    pollfd entry{wires.server.to_poll(sockets.server.get()), POLLIN, 0};
    EXPECT_EQ(::poll(&entry, 1, 0), 1);
    std::array<std::byte, 10> rest;
    ASSERT_EQ(wires.server.receive(sockets.server.get(), rest), 6);
    entry.fd = wires.server.to_poll(sockets.server.get());
    EXPECT_EQ(::poll(&entry, 1, 0), 0);
}

TEST(Wire, tells_an_end_from_a_cut) {
    for (const bool says_so : {true, false}) {
        Sockets sockets;
        Wires wires(sockets);
        if (says_so) wires.client.end(sockets.client.get());
        sockets.client.reset();
        std::array<std::byte, 4> room;
        net::wait_for(sockets.server.get(), POLLIN, soon(), nullptr, "test");
        EXPECT_EQ(wires.server.receive(sockets.server.get(), room), 0);
        EXPECT_EQ(wires.server.error().empty(), says_so) << wires.server.error();
    }
}

TEST(Wire, what_is_spoiled_on_request_is_noticed) {
    Sockets sockets;
    Wires wires(sockets);
    ASSERT_TRUE(wires.client.spoil());
    wires.client.send_all(sockets.client.get(), bytes_of("words"), soon(), nullptr, "test");
    std::array<std::byte, 5> room;
    net::wait_for(sockets.server.get(), POLLIN, soon(), nullptr, "test");
    EXPECT_EQ(wires.server.receive(sockets.server.get(), room), -1);
    EXPECT_EQ(errno, EBADMSG);
    EXPECT_NE(wires.server.error().find("changed"), std::string::npos) << wires.server.error();
    EXPECT_FALSE(Wire().spoil());
}

TEST(Wire, a_peer_without_the_secret_or_without_tls_is_a_security_error) {
    const auto attempt = [](auto&& answer) {
        Sockets sockets;
        std::thread other([&] {
            std::array<std::byte, 100> heard;
            net::recv_all(sockets.server.get(), std::span(heard).first(50), soon(), nullptr, "test");
            answer(sockets.server.get());
            ::shutdown(sockets.server.get(), SHUT_WR);
        });
        std::string text = "no error";
        try {
            (void)secure(sockets.client.get(), the_secret(), std::string(identity), soon(), nullptr);
        } catch (const DistNetworkError& error) {
            EXPECT_EQ(error.code(), ErrorCode::security);
            text = error.what();
        }
        other.join();
        EXPECT_NE(text.find(identity), std::string::npos) << text;
        EXPECT_NE(text.find("TUTTI_JOB_SECRET"), std::string::npos) << text;
    };
    attempt([](int fd) { net::send_all(fd, bytes_of("HTTP/1.1 400 Bad Request\r\n\r\n"), soon(), nullptr, "test"); });
    attempt([](int fd) {
        const std::byte alert[] = {std::byte{21}, std::byte{3}, std::byte{3}, std::byte{0},
                                   std::byte{2},  std::byte{2}, std::byte{40}};
        net::send_all(fd, alert, soon(), nullptr, "test");
    });
}

}  // namespace
}  // namespace tutti::security::tls_tests
