// Which lane carries the next chunk.
#include "transport/tcp/lane_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::transport {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t chunk = 65'000;

TEST(LaneChoice, takes_the_one_with_the_fewest_bytes_while_no_speed_is_known) {
    const std::array<LaneLoad, 3> lanes{{{true, 9'000, 0}, {true, 4'000, 0}, {true, 5'000, 0}}};
    EXPECT_EQ(choose_lane(lanes, chunk), 1U);
}

TEST(LaneChoice, takes_the_one_that_brings_the_chunk_first) {
    // 300 KB before it at 60 bytes a microsecond, or nothing at 12: 6.1 and 5.4 ms.
    EXPECT_EQ(choose_lane(std::array<LaneLoad, 2>{{{true, 300'000, 60}, {true, 0, 12}}}, chunk), 1U);
    EXPECT_EQ(choose_lane(std::array<LaneLoad, 2>{{{true, 200'000, 60}, {true, 0, 12}}}, chunk), 0U);
}

TEST(LaneChoice, tries_a_lane_of_unknown_speed_and_has_none_where_none_takes_a_chunk) {
    EXPECT_EQ(choose_lane(std::array<LaneLoad, 2>{{{true, 65'000, 60}, {true, 0, 0}}}, chunk), 1U);
    EXPECT_FALSE(choose_lane(std::array<LaneLoad, 2>{{{false, 0, 60}, {false, 0, 12}}}, chunk));
}

TEST(LanePace, counts_stretches_in_which_bytes_were_under_way) {
    LanePace pace;
    Instant now = Clock::now();
    std::uint64_t acknowledged = 0;
    const auto look = [&](std::chrono::milliseconds after, std::uint64_t more, std::size_t under_way) {
        now += after;
        pace.look(now, acknowledged += more, under_way);
    };
    look(1ms, 0, 1'000);
    EXPECT_EQ(pace.rate(), 0);
    look(10ms, 120'000, 1'000);
    EXPECT_DOUBLE_EQ(pace.rate(), 12);
    look(10ms, 1'000, 0);  // idle at its end
    look(10ms, 1'000, 1'000);
    look(1s, 1'000, 1'000);  // too long
    EXPECT_DOUBLE_EQ(pace.rate(), 12);
    for (int i = 0; i < 20; ++i) look(10ms, 600'000, 1'000);
    EXPECT_NEAR(pace.rate(), 60, 1);
}

/// Two lanes whose queues drain at their rates, and a rank that keeps at most a megabyte on its way to a reader in
/// order: returns the bytes a microsecond that arrive.
double carried(std::array<double, 2> rates, bool known) {
    struct Chunk {
        std::size_t lane;
        double left;
    };
    constexpr double step_us = 50;
    constexpr std::size_t window = 1 << 20;
    std::vector<Chunk> all;
    std::size_t read = 0;
    for (int step = 0; step < 40'000; ++step) {
        std::array<double, 2> moves{rates[0] * step_us, rates[1] * step_us}, queued{};
        for (std::size_t i = read; i < all.size(); ++i) {
            const double moved = std::min(all[i].left, moves[all[i].lane]);
            moves[all[i].lane] -= moved;
            all[i].left -= moved;
            queued[all[i].lane] += all[i].left;
        }
        while (read < all.size() && all[read].left <= 0) ++read;
        while ((all.size() - read) * chunk < window) {
            std::array<LaneLoad, 2> lanes;
            for (std::size_t i = 0; i < 2; ++i)
                lanes[i] = {true, static_cast<std::size_t>(queued[i]), known ? rates[i] : 0};
            const auto choice = choose_lane(lanes, chunk);
            if (!choice) break;
            all.push_back({*choice, chunk});
            queued[*choice] += chunk;
        }
    }
    return static_cast<double>(read * chunk) / (40'000 * step_us);
}

TEST(LaneChoice, a_slow_lane_beside_a_quick_one_adds_its_speed) {
    EXPECT_GT(carried({60, 12}, true), 0.97 * 72);
    EXPECT_LT(carried({60, 12}, false), 0.7 * 72);  // by bytes alone
    EXPECT_GT(carried({60, 6}, true), 0.97 * 66);
    EXPECT_GT(carried({60, 60}, true), 0.97 * 120);
}

}  // namespace
}  // namespace tutti::transport
