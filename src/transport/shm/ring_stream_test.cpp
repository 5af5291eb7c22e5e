// Two ends of a pair of rings, driven by turns in one thread: messages and bytes come out in the order in which they
// were written, by either way.
#include "transport/shm/ring_stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

namespace tutti::transport {
namespace {

struct Pair {
    std::shared_ptr<Arena> arena = Arena::create_private({.ranks = 2});
    RingStream writer{arena, 0, 1}, reader{arena, 1, 0};
};

std::vector<std::byte> pattern(unsigned seed, std::size_t length) {
    std::vector<std::byte> bytes(length);
    for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(seed * 131 + i);
    return bytes;
}

ShortMessage message_of(unsigned number, std::size_t length) {
    return {number, ~std::uint64_t{number}, number % 1000, static_cast<std::uint8_t>(number % 200),
            static_cast<std::uint32_t>(length & 0xffffff)};
}

// An item under way: a message, or bytes.
struct Sent {
    bool is_message;
    unsigned number;
    std::vector<std::byte> bytes;
};

void read_next(RingStream& reader, std::deque<Sent>& sent) {
    ShortMessage message{};
    const Arrival arrival = reader.next(message);
    if (arrival == Arrival::nothing) {
        ASSERT_TRUE(sent.empty());
        return;
    }
    ASSERT_FALSE(sent.empty());
    Sent& first = sent.front();
    if (arrival == Arrival::short_message) {
        ASSERT_TRUE(first.is_message) << "a message overtook bytes";
        ASSERT_EQ(message.channel, first.number);
        ASSERT_EQ(message.fingerprint, ~std::uint64_t{first.number});
        ASSERT_EQ(message.given_back, first.number % 1000);
        ASSERT_EQ(message.kind, first.number % 200);
        ASSERT_EQ(message.length, first.bytes.size());
        std::vector<std::byte> got(message.length);
        reader.take(got.data());
        ASSERT_EQ(got, first.bytes);
        sent.pop_front();
        return;
    }
    std::vector<std::byte> got(5000), ahead(300);
    const std::size_t count = reader.read(got, ahead);
    ASSERT_GT(count, 0U);
    got.insert(got.end(), ahead.begin(), ahead.end());
    for (std::size_t done = 0; done < count;) {
        ASSERT_FALSE(sent.empty());
        Sent& from = sent.front();
        ASSERT_FALSE(from.is_message) << "bytes overtook a message";
        const std::size_t part = std::min(count - done, from.bytes.size());
        ASSERT_EQ(std::memcmp(got.data() + done, from.bytes.data(), part), 0);
        from.bytes.erase(from.bytes.begin(), from.bytes.begin() + static_cast<std::ptrdiff_t>(part));
        if (from.bytes.empty()) sent.pop_front();
        done += part;
    }
}

TEST(RingStream, keeps_messages_and_bytes_in_one_order) {
    Pair pair;
    std::mt19937 random(3);
    std::deque<Sent> sent;
    std::size_t refused = 0;
#ifdef __SANITIZE_THREAD__  // one thread: other builds look longer
    constexpr unsigned numbers = 6'000;
#else
    constexpr unsigned numbers = 60'000;
#endif
    for (unsigned number = 1; number < numbers; ++number) {
        constexpr std::size_t lengths[] = {0, 1, 24, 25, 88, 89, 4000, 16'383};
        const std::size_t length = lengths[random() % std::size(lengths)];
        auto bytes = pattern(number, length);
        // Long stretches in which the writer is ahead, and others in which the reader catches up.
        const bool writes = (number / 300) % 2 == 0 ? random() % 4 != 0 : random() % 4 == 0;
        if (!writes) {
            ASSERT_NO_FATAL_FAILURE(read_next(pair.reader, sent));
        } else if (random() % 3 != 0) {
            const bool taken = pair.writer.put(message_of(number, length), bytes.data());
            refused += taken ? 0 : 1;
            if (taken) sent.push_back({true, number, std::move(bytes)});
        } else if (!bytes.empty()) {
            const std::size_t header = std::min<std::size_t>(bytes.size(), 56);
            bytes.resize(pair.writer.write(std::span(bytes).first(header), std::span(bytes).subspan(header)));
            if (!bytes.empty()) sent.push_back({false, number, std::move(bytes)});
        }
    }
    while (!sent.empty()) ASSERT_NO_FATAL_FAILURE(read_next(pair.reader, sent));
    ShortMessage message{};
    EXPECT_EQ(pair.reader.next(message), Arrival::nothing);
    EXPECT_GT(refused, 0U) << "the rings were never full";
}

TEST(RingStream, has_room_again_when_its_reader_has_taken_everything) {
    Pair pair;
    const auto fill = [&](std::size_t length) {
        unsigned count = 0;
        while (pair.writer.put(message_of(count, length), pattern(0, length).data())) ++count;
        return count;
    };
    EXPECT_EQ(fill(8), RingControl::slots);
    std::vector<std::byte> bytes(16'384);
    ShortMessage message{};
    for (int turn = 0; turn < 40; ++turn) {
        while (pair.reader.next(message) == Arrival::short_message) pair.reader.take(bytes.data());
        // The writer hears of most, though not of all, that the reader has taken.
        const unsigned count = turn % 2 == 0 ? fill(16'000) : fill(8);
        EXPECT_GE(count, turn % 2 == 0 ? 3U : RingControl::slots * 3 / 4) << turn;
    }
}

}  // namespace
}  // namespace tutti::transport
