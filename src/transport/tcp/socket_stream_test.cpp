// A stream over one or several TCP connections.
#include "transport/tcp/socket_stream.hpp"

#include "core/crc32c.hpp"

#include "core/socket.hpp"

#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::transport {
namespace {

using namespace std::chrono_literals;

struct Connection {
    UniqueFd near, far;
};
Connection connection(int buffer_bytes = 0) {
    const UniqueFd listener = net::listen_tcp("127.0.0.1", 0);
    const auto limit = Deadline::after(10s);
    Connection made;
    made.near = net::connect_tcp({"127.0.0.1", net::local_address(listener.get()).port}, limit, nullptr);
    made.far = net::accept_one(listener.get(), limit, nullptr, "test");
    for (const int fd : {made.near.get(), made.far.get()}) {
        if (buffer_bytes == 0) continue;
        for (const int option : {SO_SNDBUF, SO_RCVBUF})
            ::setsockopt(fd, SOL_SOCKET, option, &buffer_bytes, sizeof buffer_bytes);
    }
    return made;
}

SocketStream stream(int lanes = 1, Checksums checksums = Checksums::on) {
    static SocketTime time;
    return {Congestion::from_environment(), {.most = lanes, .as_needed = false}, checksums, time};
}

/// The stream's byte number `at` in these tests.
std::byte byte_at(std::uint64_t at) {
    return static_cast<std::byte>((at * 2654435761U) >> 13);
}

/// One direction: messages of a header and a payload each, written and read by turns as far as they go.
class Flow {
 public:
    Flow(SocketStream& from, SocketStream& to, unsigned seed) : from_(from), to_(to), random_(seed) {}

    /// False when nothing could be done.
    bool turn(std::uint64_t end) {
        bool moved = false;
        if (message_.size() == done_ && written_ < end) {
            const std::size_t sizes[] = {1, 56, 64, 4'000, 70'000, 300'000};
            message_.resize(std::min<std::uint64_t>(sizes[random_() % std::size(sizes)], end - written_));
            for (std::size_t i = 0; i < message_.size(); ++i) message_[i] = byte_at(written_ + i);
            done_ = 0;
        }
        if (done_ < message_.size()) {
            const auto rest = std::span(message_).subspan(done_);
            const std::size_t header = std::min<std::size_t>(rest.size(), done_ < 56 ? 56 - done_ : 0);
            // Not always all of it, as when a turn has moved enough bytes.
            const std::size_t shown =
                std::min<std::size_t>(rest.size() - header, random_() % 2 == 0 ? 262'144 : 100'000);
            const std::size_t count = from_.write(rest.first(header), rest.subspan(header, shown));
            EXPECT_LE(count, header + shown);
            done_ += count;
            written_ += count;
            moved = count > 0;
        }
        std::array<std::byte, 50'000> room;
        const auto into = std::span(room).first(1 + random_() % room.size());
        const std::size_t count = to_.read(into, {});
        for (std::size_t i = 0; i < count; ++i) {
            if (into[i] == byte_at(read_ + i)) continue;
            ADD_FAILURE() << "byte " << read_ + i << " is wrong";
            return false;
        }
        read_ += count;
        return moved || count > 0;
    }
    bool waits_to_write() const { return done_ < message_.size(); }
    std::uint64_t read() const { return read_; }
    std::uint64_t written() const { return written_; }

 private:
    SocketStream& from_;
    SocketStream& to_;
    std::mt19937 random_;
    std::vector<std::byte> message_;
    std::size_t done_ = 0;
    std::uint64_t written_ = 0, read_ = 0;
};

/// Sends `bytes` each way; between turns it waits only for the descriptors that the streams name.
void exchange(
    SocketStream& a, SocketStream& b, std::uint64_t bytes, const std::function<void()>& each_turn = [] {}) {
    Flow there(a, b, 1), back(b, a, 2);
    while (there.read() < bytes || back.read() < bytes) {
        each_turn();
        const bool moved = there.turn(bytes);
        if (back.turn(bytes) || moved) continue;
        if (::testing::Test::HasFailure()) return;
        std::vector<Pollable> wanted;
        a.pollables(there.waits_to_write(), wanted);
        b.pollables(back.waits_to_write(), wanted);
        std::vector<pollfd> entries;
        for (const Pollable& one : wanted)
            entries.push_back({one.fd, static_cast<short>(one.output ? POLLOUT : POLLIN), 0});
        ASSERT_GT(::poll(entries.data(), entries.size(), 5000), 0)
            << "nothing tells that " << there.read() << " of " << there.written() << " and " << back.read() << " of "
            << back.written() << " bytes go on";
    }
}

TEST(SocketStream, carries_bytes_in_order_over_any_number_of_connections) {
    const std::pair<int, Checksums> cases[] = {
        {1, Checksums::on}, {1, Checksums::off}, {2, Checksums::on}, {5, Checksums::on}, {5, Checksums::off}};
    for (const auto& [lanes, checksums] : cases) {
        SocketStream a = stream(1, checksums), b = stream(1, checksums);
        for (int i = 0; i < lanes; ++i) {
            Connection made = connection();
            (i % 2 == 0 ? a : b).add(std::move(made.near));
            (i % 2 == 0 ? b : a).add(std::move(made.far));
        }
        exchange(a, b, 8 << 20);
        EXPECT_EQ(a.state(), StreamState::open) << a.reason();
        EXPECT_EQ(a.lanes(), lanes);
    }
}

// ---- By TLS

struct Secured {
    security::Connection near, far;
};
Secured secured(int buffer_bytes = 0) {
    const auto secret = security::Secret::from_text("a secret for tests");
    Connection made = connection(buffer_bytes);
    auto far = security::Tls::accepting(secret, [](std::string_view) { return true; });
    std::thread other([&] {
        while (far->state() == security::Tls::State::shaking_hands) {
            net::wait_for(made.far.get(), POLLIN, Deadline::after(10s), nullptr, "test");
            const auto room = far->input().room(4096);
            const ssize_t got = ::recv(made.far.get(), room.data(), room.size(), 0);
            far->input().added(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
            far->go_on();
            net::send_all(made.far.get(), far->output().bytes(), Deadline::after(10s), nullptr, "test");
            far->output().remove(far->output().bytes().size());
        }
    });
    security::Wire near = security::secure(made.near.get(), secret, "test", Deadline::after(10s), nullptr);
    other.join();
    return {{std::move(made.near), std::move(near)}, {std::move(made.far), security::Wire(std::move(far))}};
}

TEST(SocketStream, carries_bytes_in_order_by_tls_over_any_number_of_connections_and_says_its_end) {
    for (const auto& [lanes, buffer] : {std::pair(1, 0), std::pair(1, 65'536), std::pair(3, 65'536)}) {
        SocketStream a = stream(1), b = stream(1);
        for (int i = 0; i < lanes; ++i) {
            Secured made = secured(buffer);
            (i % 2 == 0 ? a : b).add(std::move(made.near));
            (i % 2 == 0 ? b : a).add(std::move(made.far));
        }
        exchange(a, b, 4 << 20);
        EXPECT_EQ(a.state(), StreamState::open) << a.reason();
        while (!a.end()) std::this_thread::sleep_for(1ms);
        std::array<std::byte, 8> room;
        for (const auto limit = Deadline::after(10s); b.state() == StreamState::open && !limit.expired();)
            EXPECT_EQ(b.read(room, {}), 0U);
        EXPECT_EQ(b.state(), StreamState::ended) << b.reason();
    }
}

TEST(SocketStream, says_of_what_was_changed_in_spite_of_tls_that_it_was) {
    SocketStream a = stream(), b = stream();
    Secured made = secured();
    a.add(std::move(made.near));
    b.add(std::move(made.far));
    ASSERT_TRUE(a.spoil());
    std::array<std::byte, 56> words{};
    ASSERT_EQ(a.write(words, {}), words.size());
    for (const auto limit = Deadline::after(10s); b.state() == StreamState::open && !limit.expired();)
        EXPECT_EQ(b.read(words, {}), 0U);
    EXPECT_EQ(b.state(), StreamState::damaged);
    EXPECT_NE(b.reason().find("TLS"), std::string::npos) << b.reason();
}

TEST(SocketStream, takes_connections_while_bytes_are_under_way) {
    SocketStream a = stream(), b = stream();
    std::vector<UniqueFd> late;
    int turns = 0;
    Connection first = connection(65536);
    a.add(std::move(first.near));
    b.add(std::move(first.far));
    exchange(a, b, 8 << 20, [&] {
        ++turns;
        if (turns % 50 == 0 && a.lanes() < 4) {
            Connection made = connection(turns % 100 == 0 ? 65536 : 0);
            a.add(std::move(made.near));
            late.push_back(std::move(made.far));
        }
        // The other side gets to know it only later: bytes are there by then.
        if (turns % 50 == 20 && !late.empty()) {
            b.add(std::move(late.back()));
            late.pop_back();
        }
    });
    EXPECT_EQ(a.lanes(), 4);
    EXPECT_EQ(b.lanes(), 4);
}

std::uint64_t acknowledged(int fd) {
    tcp_info info{};
    socklen_t size = sizeof info;
    ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);
    return info.tcpi_bytes_acked;
}

TEST(SocketStream, puts_less_on_a_slow_connection) {
    SocketStream a = stream(), b = stream();
    std::array<int, 2> fds{};
    for (std::size_t i = 0; i < 2; ++i) {
        Connection made = connection(262'144);
        fds[i] = made.near.get();
        a.add(std::move(made.near));
        b.add(std::move(made.far));
    }
    const std::uint32_t slow = 512 << 10;  // bytes a second: also where a sanitizer watches the other one
    ::setsockopt(fds[0], SOL_SOCKET, SO_MAX_PACING_RATE, &slow, sizeof slow);
    exchange(a, b, 4 << 20);
    EXPECT_GT(acknowledged(fds[0]), 64U << 10);
    EXPECT_GT(acknowledged(fds[1]), 2 * acknowledged(fds[0]));
}

TEST(SocketStream, leaves_connections_of_the_peer_alone_until_more_are_quicker) {
    SocketTime time;
    SocketStream a(Congestion::from_environment(), {.most = 4, .as_needed = true}, Checksums::on, time), b = stream();
    std::array<int, 2> fds{};
    for (int& fd : fds) {
        Connection made = connection(65536);
        fd = made.near.get();
        a.add(std::move(made.near));
        b.add(std::move(made.far));
    }
    const std::vector<std::byte> bytes(4 << 20);
    ASSERT_LT(a.write({}, bytes), bytes.size());
    std::vector<Pollable> waits;
    a.pollables(true, waits);
    std::erase_if(waits, [](const Pollable& one) { return !one.output; });
    ASSERT_EQ(waits.size(), 1U);  // the other one is always writable: a rank would turn without ever sleeping
    EXPECT_EQ(waits.front().fd, fds[0]);
    EXPECT_LE(acknowledged(fds[1]), 1U);  // the handshake's
}

TEST(SocketStream, wants_a_connection_once_bytes_wait_for_one) {
    SocketStream a = stream(2);
    EXPECT_TRUE(a.needs_connection());
    Connection made = connection(8192);
    a.add(std::move(made.near));
    EXPECT_FALSE(a.needs_connection());
    const std::vector<std::byte> bytes(32 << 20);
    EXPECT_EQ(a.write(std::span(bytes).first(56), {}), 56U);
    EXPECT_FALSE(a.wants_connection());
    a.write({}, bytes);
    EXPECT_TRUE(a.wants_connection());
    Connection other = connection();
    a.add(std::move(other.near));
    EXPECT_FALSE(a.wants_connection());
    a.write({}, bytes);
    EXPECT_FALSE(a.wants_connection());
}

std::size_t read_all(SocketStream& stream, std::chrono::milliseconds limit) {
    std::vector<std::byte> room(1 << 20);
    std::size_t total = 0;
    const auto deadline = Deadline::after(limit);
    while (stream.state() == StreamState::open && !deadline.expired()) {
        const std::size_t count = stream.read(room, {});
        total += count;
        if (count == 0) std::this_thread::sleep_for(1ms);
    }
    return total;
}

TEST(SocketStream, gives_all_that_was_sent_before_the_peer_closed) {
    SocketStream b = stream();
    std::size_t sent = 0;
    {
        SocketStream a = stream();
        for (int i = 0; i < 3; ++i) {
            Connection made = connection(65536);
            a.add(std::move(made.near));
            b.add(std::move(made.far));
        }
        const std::vector<std::byte> bytes(1 << 20);
        for (std::size_t count = 1; count > 0; sent += count) count = a.write({}, bytes);
    }
    // A chunk of which only a part was taken ends with its connection.
    EXPECT_GE(read_all(b, 10s), sent);
    EXPECT_EQ(b.state(), StreamState::closed);
    EXPECT_EQ(b.reason(), "it closed the connection");
}

// The connection that says the end is far ahead of the other one.
TEST(SocketStream, ends_when_all_that_was_sent_has_been_read_however_long_a_connection_takes) {
    SocketStream b = stream();
    std::array<Connection, 2> made{connection(), connection()};
    for (Connection& one : made) b.add(std::move(one.far));
    const auto put = [&](std::size_t lane, ChunkHeader header) {
        std::vector<std::byte> bytes(sizeof header + header.bytes);
        header.sum = crc32c(std::span(bytes).subspan(sizeof header));
        header.own_sum = header.right_sum();
        std::memcpy(bytes.data(), &header, sizeof header);
        EXPECT_EQ(::send(made.at(lane).near.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    };
    put(1, {.number = 1, .bytes = 1000});
    put(1, {.number = 2});
    ::shutdown(made[1].near.get(), SHUT_WR);
    EXPECT_EQ(read_all(b, 1500ms), 0U);
    EXPECT_EQ(b.state(), StreamState::open) << b.reason();
    put(0, {.number = 0, .bytes = 500});
    ::shutdown(made[0].near.get(), SHUT_WR);
    EXPECT_EQ(read_all(b, 10s), 1500U);
    EXPECT_EQ(b.state(), StreamState::ended) << b.reason();
}

TEST(SocketStream, is_not_delivered_before_the_peer_s_kernel_has_all) {
    SocketStream a = stream(), b = stream();
    Connection made = connection(8192);
    a.add(std::move(made.near));
    b.add(std::move(made.far));
    const std::vector<std::byte> bytes(1 << 20);
    std::size_t sent = 0;
    for (int full = 0; full < 3;) {
        const std::size_t count = a.write({}, std::span(bytes).first(100'000));
        sent += count;
        full = count == 0 ? full + 1 : 0;
        if (count == 0) std::this_thread::sleep_for(10ms);
    }
    a.close();  // perhaps within a message
    std::this_thread::sleep_for(50ms);
    EXPECT_FALSE(a.delivered());
    EXPECT_GE(read_all(b, 10s), sent);
    EXPECT_NE(b.state(), StreamState::open);
    for (const auto limit = Deadline::after(10s); !a.delivered() && !limit.expired();) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(a.delivered());
}

TEST(SocketStream, does_not_wait_for_what_went_with_one_of_its_connections) {
    SocketStream a = stream(), b = stream();
    Connection first = connection(), second = connection();
    a.add(std::move(first.near));
    a.add(std::move(second.near));
    b.add(std::move(first.far));
    const int cut = second.far.get();
    b.add(std::move(second.far));
    std::array<std::byte, 8> room;
    EXPECT_EQ(a.write(room, {}), room.size());
    EXPECT_EQ(b.read(room, {}), room.size());
    net::end_by_reset(cut);
    const sockaddr nowhere{.sa_family = AF_UNSPEC};
    ASSERT_EQ(::connect(cut, &nowhere, sizeof nowhere), 0);  // resets it
    EXPECT_EQ(read_all(b, 10s), 0U);
    EXPECT_EQ(b.state(), StreamState::closed);
    EXPECT_EQ(read_all(a, 10s), 0U);
    EXPECT_EQ(a.state(), StreamState::closed);
}

constexpr std::size_t frame_bytes = 56;

/// The bytes that a stream writes for one message: a header, then a payload.
std::vector<std::byte> written_for(std::size_t payload_bytes, Checksums checksums) {
    SocketStream a = stream(1, checksums);
    Connection made = connection();
    a.add(std::move(made.near));
    std::vector<std::byte> message(frame_bytes + payload_bytes), wire;
    for (std::size_t i = 0; i < message.size(); ++i) message[i] = byte_at(i);
    for (std::size_t done = 0; done < message.size();) {
        const auto rest = std::span(message).subspan(done);
        const std::size_t header = done < frame_bytes ? frame_bytes - done : 0;
        done += a.write(rest.first(header), rest.subspan(header));
        std::array<std::byte, 65536> room;
        const ssize_t count =
            ::recv(made.far.get(), room.data(), room.size(), done < message.size() ? MSG_DONTWAIT : 0);
        if (count > 0) wire.insert(wire.end(), room.begin(), room.begin() + count);
    }
    for (std::array<std::byte, 65536> room;;) {
        const ssize_t count = ::recv(made.far.get(), room.data(), room.size(), MSG_DONTWAIT);
        if (count <= 0) return wire;
        wire.insert(wire.end(), room.begin(), room.begin() + count);
    }
}

struct Given {
    std::vector<std::byte> bytes;
    StreamState state;
    std::string reason;
};
/// The stream's output for these bytes.
Given given_for(std::span<const std::byte> wire, Checksums checksums) {
    SocketStream b = stream(1, checksums);
    Connection made = connection();
    b.add(std::move(made.far));
    Given given;
    std::size_t sent = 0;
    for (const auto end = Deadline::after(20s); b.state() == StreamState::open && !end.expired();) {
        if (sent < wire.size()) {
            const ssize_t count = ::send(made.near.get(), wire.data() + sent, wire.size() - sent, MSG_DONTWAIT);
            if (count > 0) sent += static_cast<std::size_t>(count);
            if (sent == wire.size()) ::shutdown(made.near.get(), SHUT_WR);
        }
        std::array<std::byte, 50'000> room;
        const std::size_t count = b.read(room, {});
        given.bytes.insert(given.bytes.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(count));
    }
    given.state = b.state();
    given.reason = b.reason();
    return given;
}

bool is_as_sent(std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] != byte_at(i)) return false;
    }
    return true;
}

TEST(SocketStream, never_gives_all_of_what_was_changed_on_the_way_and_no_header_that_was) {
    std::mt19937 random(3);
    for (const std::size_t payload : {0, 1, 1000, 8120, 8121, 100'000, 1'300'000}) {
        const std::size_t whole = frame_bytes + payload;
        const std::vector<std::byte> wire = written_for(payload, Checksums::on);
        Given given = given_for(wire, Checksums::on);
        ASSERT_EQ(given.state, StreamState::closed);  // by its peer
        ASSERT_TRUE(given.bytes.size() == whole && is_as_sent(given.bytes)) << payload;
        std::vector<std::size_t> places(wire.size() < 200 ? wire.size() : 200);
        for (std::size_t i = 0; i < places.size(); ++i)  // all headers, then some of all
            places[i] = i < 100 ? i : wire.size() < 200 || i == 199 ? wire.size() - 200 + i : random() % wire.size();
        if (wire.size() < 200) std::iota(places.begin(), places.end(), std::size_t{0});
        if (payload == 1'300'000) places.resize(110);
        for (const std::size_t place : places) {
            std::vector<std::byte> changed = wire;
            changed[place] ^= static_cast<std::byte>(1U << random() % 8);
            given = given_for(changed, Checksums::on);
            ASSERT_EQ(given.state, StreamState::damaged) << payload << ", byte " << place << ": " << given.reason;
            ASSERT_NE(given.reason.find("CRC-32C"), std::string::npos) << given.reason;
            ASSERT_LT(given.bytes.size(), whole) << payload << ", byte " << place;
            ASSERT_TRUE(is_as_sent(std::span(given.bytes).first(std::min(given.bytes.size(), frame_bytes))))
                << payload << ", byte " << place;
        }
    }
}

TEST(SocketStream, without_checksums_gives_what_comes) {
    std::vector<std::byte> wire = written_for(100'000, Checksums::off);
    wire[5000] ^= std::byte{1};
    const Given given = given_for(wire, Checksums::off);
    EXPECT_EQ(given.bytes.size(), frame_bytes + 100'000);
    EXPECT_FALSE(is_as_sent(given.bytes));
    EXPECT_EQ(given.state, StreamState::closed);
}

TEST(SocketStream, refuses_what_is_not_a_chunk) {
    for (const ChunkHeader& header :
         {ChunkHeader{0xffffffff, 0}, ChunkHeader{0, 0xffffff}, ChunkHeader{0xffffffff, 8}}) {
        SocketStream b = stream(1, Checksums::off);
        Connection made = connection();
        b.add(std::move(made.far));
        const std::array<ChunkHeader, 2> sent{header, header};
        ASSERT_EQ(::send(made.near.get(), sent.data(), sizeof sent, 0), static_cast<ssize_t>(sizeof sent));
        EXPECT_EQ(read_all(b, 500ms), 0U);
        EXPECT_EQ(b.state(), StreamState::closed) << header.number << " " << header.bytes;
    }
}

}  // namespace
}  // namespace tutti::transport
