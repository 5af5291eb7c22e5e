// Every way of copying into the staging area copies the same bytes.
#include "transport/shm/staging_copy.hpp"

#include "core/stream_copy.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tutti::transport {
namespace {

std::vector<std::byte> numbered(std::size_t bytes) {
    std::vector<std::byte> values(bytes);
    for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(i * 7 + i / 251);
    return values;
}

TEST(StreamCopy, copies_every_byte_and_no_other_at_any_offset) {
    const auto from = numbered(5000);
    for (const std::size_t to_offset : {0, 1, 16, 63}) {
        for (const std::size_t from_offset : {0, 3, 32}) {
            for (const std::size_t bytes : {0, 1, 63, 64, 65, 200, 4096}) {
                std::vector<std::byte> to(5000, std::byte{0xee}), want = to;
                std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(from_offset), bytes,
                            want.begin() + static_cast<std::ptrdiff_t>(to_offset));
                stream_copy(to.data() + to_offset, from.data() + from_offset, bytes);
                EXPECT_EQ(to, want) << to_offset << ' ' << from_offset << ' ' << bytes;
            }
        }
    }
}

// A copy stores around the cache always, never, or when that is quicker, with trials in between.
TEST(StagingCopy, copies_every_byte_whichever_way_it_takes) {
    const auto from = numbered(100'000);
    for (StagingCopy copy : {StagingCopy(), StagingCopy(-1e9), StagingCopy(1e9), StagingCopy(0), StagingCopy(0, 999),
                             StagingCopy(0, 999, 0.5)}) {
        for (int turn = 0; turn < 200; ++turn) {
            const std::size_t bytes = turn % 3 == 0 ? 1000 : 100'000 - static_cast<std::size_t>(turn) * 300;
            std::vector<std::byte> to(bytes);
            copy(to.data(), from.data(), bytes);
            ASSERT_TRUE(std::equal(to.begin(), to.end(), from.begin())) << turn;
            std::ranges::fill(to, std::byte{0});
            using Trial = StagingCopy::Trial;
            copy(to.data(), from.data(), bytes, turn % 2 == 0 ? Trial::here : Trial::elsewhere);
            ASSERT_TRUE(std::equal(to.begin(), to.end(), from.begin())) << turn;
        }
    }
}

// A rank tries the way that is not in use, and takes it only if it is better.
TEST(StagingCopy, takes_the_better_way) {
    const auto from = numbered(20'000);
    for (const double returning : {1.0, 0.5}) {
        StagingCopy around(-1e9, 999, returning), through(1e9, 999, returning);
        std::vector<std::byte> to(from.size());
        for (int turn = 0; turn < 3000; ++turn) {
            around(to.data(), from.data(), to.size());
            through(to.data(), from.data(), to.size());
            ASSERT_TRUE(around.streams()) << turn << ' ' << returning;
            ASSERT_FALSE(through.streams()) << turn << ' ' << returning;
        }
    }
}

}  // namespace
}  // namespace tutti::transport
