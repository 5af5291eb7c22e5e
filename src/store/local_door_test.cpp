// The local door, and the pipe that a client gets there. Network only on loopback.
#include "store/local_door.hpp"

#include "core/socket.hpp"
#include "core/unix_socket.hpp"
#include "security/handshake.hpp"
#include "store/tcp_test_support.hpp"
#include "store/wire.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <array>
#include <climits>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::a_client;
using test::a_master;
using test::closes_within;
using test::connect_raw;

security::Secret the_secret() {
    return security::Secret::from_text(test::store_secret);
}

std::string frame(store::Op op, std::uint64_t request, std::uint32_t posts = 0,
                  std::initializer_list<std::string_view> fields = {}) {
    std::string body;
    for (const auto field : fields) {
        const auto size = store::encode_number(field.size());
        body.append(size.data(), size.size()).append(field);
    }
    const auto raw = store::encode({op, request, body.size(), posts});
    return std::string(raw.data(), raw.size()) + body;
}

void say(int fd, std::string_view bytes) {
    net::send_all(fd, std::as_bytes(std::span(bytes)), Deadline::after(10s), nullptr, "test");
}

/// The fields of the next answer.
std::vector<std::string> hear(int fd) {
    std::array<char, store::header_bytes> header;
    net::recv_all(fd, std::as_writable_bytes(std::span(header)), Deadline::after(10s), nullptr, "test");
    std::string body(store::decode(header).value().body_bytes, '\0');
    net::recv_all(fd, std::as_writable_bytes(std::span(body)), Deadline::after(10s), nullptr, "test");
    const auto fields = store::split_fields(body).value();
    return {fields.begin(), fields.end()};
}

/// The door's name that a client of this store gets when it joins over TCP.
std::string door_of(const TCPStore& store) {
    const UniqueFd fd = connect_raw(store.port());
    security::authenticate(fd.get(), the_secret(), security::Role::connecting, store::store_purpose,
                           Deadline::after(10s), nullptr);
    const auto raw = store::encode({store::Op::join, 1, 0});
    EXPECT_GT(::send(fd.get(), raw.data(), raw.size(), MSG_NOSIGNAL), 0);
    std::array<char, store::header_bytes> header;
    net::recv_all(fd.get(), std::as_writable_bytes(std::span(header)), Deadline::after(10s), nullptr, "test");
    std::string body(store::decode(header).value().body_bytes, '\0');
    net::recv_all(fd.get(), std::as_writable_bytes(std::span(body)), Deadline::after(10s), nullptr, "test");
    return std::string(store::split_fields(body).value().back());
}

/// A client at the door, and its pipe.
struct Visitor {
    explicit Visitor(const TCPStore& store) {
        const std::string door = door_of(store);
        socket = net::connect_unix(door, Deadline::after(10s), nullptr);
        net::send_all(socket.get(), store::door_proof(the_secret(), door), Deadline::after(10s), nullptr, "test");
        say(socket.get(), frame(store::Op::post_pipe, 0));
        pipe = net::recv_fd(socket.get(), Deadline::after(10s), nullptr);
    }
    void post(std::string_view bytes) const {
        ASSERT_EQ(::write(pipe.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    }
    UniqueFd socket, pipe;
};

TEST(LocalDoor, opens_only_to_those_who_know_the_secret) {
    TCPStore store = a_master();
    const std::string door = door_of(store);
    ASSERT_FALSE(door.empty());
    EXPECT_NE(door, door_of(a_master())) << "each server has its own";
    const auto secret = the_secret();
    const auto knock = [&](const security::Mac& proof) {
        UniqueFd fd = net::connect_unix(door, Deadline::after(10s), nullptr);
        net::send_all(fd.get(), proof, Deadline::after(10s), nullptr, "test");
        const auto raw = store::encode({store::Op::num_keys, 7, 0});
        (void)!::send(fd.get(), raw.data(), raw.size(), MSG_NOSIGNAL);
        return fd;
    };
    const auto wrong = security::Secret::from_text("a guess");
    EXPECT_TRUE(closes_within(knock(store::door_proof(wrong, door)).get(), 5s));
    EXPECT_TRUE(closes_within(knock(store::door_proof(secret, "another door")).get(), 5s));
    const UniqueFd friendly = knock(store::door_proof(secret, door));
    std::array<char, store::header_bytes> header;
    net::recv_all(friendly.get(), std::as_writable_bytes(std::span(header)), Deadline::after(10s), nullptr, "test");
    EXPECT_EQ(store::decode(header).value().request, 7U);
}

TEST(LocalDoor, silent_strangers_are_dropped) {
    ::setenv("TUTTI_HANDSHAKE_TIMEOUT_MS", "100", 1);
    TCPStore store = a_master();
    ::unsetenv("TUTTI_HANDSHAKE_TIMEOUT_MS");
    const UniqueFd silent = net::connect_unix(door_of(store), Deadline::after(10s), nullptr);
    EXPECT_TRUE(closes_within(silent.get(), 5s));
    store.set("a", "b");
    EXPECT_EQ(store.get("a"), "b");
}

TEST(LocalDoor, a_request_sees_all_posts_that_were_made_before_it) {
    const TCPStore store = a_master();
    const Visitor visitor(store);
    for (std::uint32_t round = 1; round <= 500; ++round) {
        const std::string value = std::to_string(round);
        visitor.post(frame(store::Op::post, 0, 0, {"a", "overwritten"}) + frame(store::Op::post, 0, 0, {"k", value}));
        say(visitor.socket.get(), frame(store::Op::get, round, 2 * round, {"k"}));
        ASSERT_EQ(hear(visitor.socket.get()), std::vector<std::string>{value});
    }
}

TEST(LocalDoor, what_was_posted_right_before_the_end_of_a_client_is_there) {
    TCPStore store = a_master();
    for (int round = 0; round < 100; ++round) {
        const std::string key = "last/" + std::to_string(round);
        {
            const Visitor visitor(store);
            visitor.post(frame(store::Op::post, 0, 0, {key, "word"}));
        }
        EXPECT_EQ(store.get(key, 5s), "word");
    }
}

TEST(LocalDoor, a_pipe_with_nonsense_costs_its_client_the_connection_and_the_server_nothing) {
    TCPStore store = a_master();
    for (const std::string& attack :
         {std::string(100, 'x'), frame(store::Op::get, 1, 0, {"k"}), frame(store::Op::post, 1, 0, {"key"}),
          frame(store::Op::post_pipe, 1), frame(store::Op::ok, 1)}) {
        const Visitor visitor(store);
        visitor.post(attack);
        EXPECT_TRUE(closes_within(visitor.socket.get(), 5s));
    }
    const Visitor twice(store);
    say(twice.socket.get(), frame(store::Op::post_pipe, 1));
    EXPECT_TRUE(closes_within(twice.socket.get(), 5s)) << "one pipe each";
    const UniqueFd over_tcp = connect_raw(store.port());
    security::authenticate(over_tcp.get(), the_secret(), security::Role::connecting, store::store_purpose,
                           Deadline::after(10s), nullptr);
    say(over_tcp.get(), frame(store::Op::post_pipe, 1));
    EXPECT_TRUE(closes_within(over_tcp.get(), 5s)) << "not over TCP";
    // A number of posts that never come holds up no client.
    const Visitor liar(store);
    say(liar.socket.get(), frame(store::Op::num_keys, 1, 4711));
    EXPECT_EQ(hear(liar.socket.get()).size(), 1U);
    store.set("still", "there");
    EXPECT_EQ(store.get("still"), "there");
}

TEST(LocalDoor, a_client_for_whose_pipe_no_descriptor_is_left_goes_on_without) {
    TCPStore store = a_master();
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const int next = ::dup(0);
    ::close(next);
    // Enough for both ends of a connection over TCP and of one at the door.
    const rlimit small{static_cast<rlim_t>(next) + 4, limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
    TCPStore client = a_client(store.port());
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 100; ++i) client.set("k", std::to_string(i));
    EXPECT_EQ(client.get("k"), "99");
}

TEST(LocalDoor, sets_of_all_sizes_keep_their_order_among_each_other_and_with_other_requests) {
    TCPStore store = a_master();
    TCPStore client = a_client(store.port());
    for (int round = 0; round < 200; ++round) {
        // Around the size that a pipe takes in one piece, and the largest that is posted at all.
        const auto size = static_cast<std::size_t>(round % 4 == 0   ? PIPE_BUF - 60 + round % 80
                                                   : round % 4 == 1 ? 20000
                                                                    : 8);
        const std::string value = std::to_string(round) + std::string(size, 'v');
        client.set("k", "earlier");
        client.set("k", value);
        EXPECT_EQ(client.compare_set("k", value, value + "!"), value + "!");
        EXPECT_EQ(client.get("k"), value + "!");
    }
}

TEST(LocalDoor, threads_of_one_client_read_what_they_wrote) {
    TCPStore store = a_master();
    TCPStore client = a_client(store.port());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            const std::string key = "key" + std::to_string(t);
            for (int i = 0; i < 500; ++i) {
                client.set(key, std::to_string(i));
                if (i % 7 == 0) {
                    EXPECT_EQ(client.get(key), std::to_string(i));
                }
            }
        });
    }
    for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace tutti
