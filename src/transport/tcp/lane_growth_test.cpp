// When a stream makes another connection.
#include "transport/tcp/lane_growth.hpp"

#include <gtest/gtest.h>
#include <tutti/error.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <string>

namespace tutti::transport {
namespace {

using namespace std::chrono_literals;

/// Traffic of a stream whose lanes are busy all the time, looked at every 10 ms.
class Traffic {
 public:
    /// `rate`: bytes a microsecond of all lanes in use together; `network`: the part of the time in which the network
    /// keeps bytes back.
    int lanes_after(std::chrono::milliseconds time, double network, const std::function<double(int lanes)>& rate) {
        for (const Instant end = now_ + time; now_ < end; now_ += 10ms) {
            const int used = in_use();
            for (int i = 0; i < used; ++i) {
                if (take_turns && i != turn_ % used) continue;
                counts_[static_cast<std::size_t>(i)].busy_us += 10'000;
                counts_[static_cast<std::size_t>(i)].network_us += static_cast<std::uint64_t>(10'000 * network);
            }
            ++turn_;
            counts_[0].bytes += static_cast<std::uint64_t>(10'000 * rate(used));
            moving_us_ += static_cast<std::uint64_t>(10'000 * moving);
            const auto counted = [this](StreamCounts& all) {
                all.lanes.assign(counts_.begin(), counts_.begin() + lanes_);
                all.moving_us = moving_us_;
            };
            while (growth_.wants(lanes_, peer_wants, now_, counted)) ++lanes_;
        }
        return lanes_;
    }
    int in_use() const { return growth_.in_use(lanes_, peer_wants); }
    int peer_wants = 1;
    double moving = 0.1;      ///< the part of the time in which this rank moves bytes
    bool take_turns = false;  ///< one lane is busy at a time
    std::chrono::milliseconds passed() const {
        return std::chrono::duration_cast<std::chrono::milliseconds>(now_ - begin_);
    }
    explicit Traffic(Lanes lanes, int made_by_peer = 0) : growth_(lanes), lanes_(1 + made_by_peer) {}

 private:
    LaneGrowth growth_;
    std::array<LaneCounts, LaneGrowth::lanes_max> counts_{};
    Instant begin_ = Clock::now(), now_ = begin_;
    std::uint64_t moving_us_ = 0;
    int lanes_;
    int turn_ = 0;
};

double of_each(int lanes) {
    return 100.0 * lanes;
}
double of_four_links(int lanes) {
    return 100.0 * std::min(lanes, 4);
}
double of_one_link(int) {
    return 100.0;
}

TEST(LaneGrowth, goes_on_while_it_brings_something) {
    for (const int most : {8, 6}) {
        Traffic traffic({.most = most});
        EXPECT_EQ(traffic.lanes_after(5s, 1.0, of_each), most);
        EXPECT_EQ(traffic.in_use(), most);
    }
}

TEST(LaneGrowth, goes_back_when_it_has_brought_nothing_twice) {
    Traffic one({.most = 16});
    EXPECT_EQ(one.lanes_after(5s, 1.0, of_one_link), 4);
    EXPECT_EQ(one.in_use(), 1);
    Traffic four({.most = 16});
    EXPECT_EQ(four.lanes_after(5s, 1.0, of_four_links), 16);  // 8 and 16 bring nothing
    EXPECT_EQ(four.in_use(), 4);
    Traffic few({.most = 2});
    EXPECT_EQ(few.lanes_after(5s, 1.0, of_one_link), 2);  // there are no more to try
    EXPECT_EQ(few.in_use(), 1);
}

TEST(LaneGrowth, takes_lanes_that_wait_for_one_another_for_no_gain) {
    Traffic traffic({.most = 8});
    traffic.take_turns = true;
    traffic.lanes_after(5s, 1.0, of_one_link);
    EXPECT_EQ(traffic.in_use(), 1);
}

TEST(LaneGrowth, goes_along_while_the_peer_tries_more) {
    Traffic traffic({.most = 8}, 3);
    traffic.peer_wants = 4;
    EXPECT_EQ(traffic.lanes_after(5s, 1.0, of_four_links), 4);
    EXPECT_EQ(traffic.in_use(), 4);
    traffic.peer_wants = 1;  // it found no gain: this rank has not tried yet
    EXPECT_EQ(traffic.in_use(), 1);
    traffic.lanes_after(5s, 1.0, of_four_links);
    EXPECT_EQ(traffic.in_use(), 4);
}

TEST(LaneGrowth, takes_a_machine_that_becomes_quicker_for_no_gain) {
    Traffic traffic({.most = 8});
    traffic.lanes_after(5s, 1.0, [&](int lanes) { return traffic.passed() < 45ms ? 50.0 : of_one_link(lanes); });
    EXPECT_EQ(traffic.in_use(), 1);
}

TEST(LaneGrowth, does_not_write_on_lanes_that_the_peer_has_made) {
    Traffic traffic({.most = 8}, 3);
    EXPECT_EQ(traffic.in_use(), 1);
    EXPECT_EQ(traffic.lanes_after(5s, 0.3, of_each), 4);
    EXPECT_EQ(traffic.in_use(), 1);
    EXPECT_EQ(traffic.lanes_after(5s, 1.0, of_four_links), 8);
    EXPECT_EQ(traffic.in_use(), 4);
}

TEST(LaneGrowth, is_not_made_where_the_ranks_are_slower_than_the_network) {
    EXPECT_EQ(Traffic({.most = 8}).lanes_after(5s, 0.3, of_each), 1);
}

TEST(LaneGrowth, is_not_made_by_a_rank_that_is_busy_copying) {
    Traffic traffic({.most = 8});
    traffic.moving = 0.7;
    EXPECT_EQ(traffic.lanes_after(5s, 1.0, of_each), 1);
    traffic.moving = 0.3;
    EXPECT_EQ(traffic.lanes_after(5s, 1.0, of_each), 8);
}

TEST(LaneGrowth, waits_until_there_has_been_traffic_for_a_while) {
    EXPECT_EQ(Traffic({.most = 8}).lanes_after(30ms, 1.0, of_each), 1);
}

TEST(LaneGrowth, asks_for_as_many_as_were_asked_for_at_once) {
    EXPECT_EQ(Traffic({.most = 3, .as_needed = false}).lanes_after(10ms, 0.0, of_one_link), 3);
    EXPECT_EQ(Traffic({.most = 1, .as_needed = false}).lanes_after(5s, 1.0, of_each), 1);
}

TEST(LaneGrowth, is_as_the_environment_says) {
    const auto set_to = [](const char* value) {
        ::setenv("TUTTI_TCP_CONNECTIONS", value, 1);
        struct Unset {
            ~Unset() { ::unsetenv("TUTTI_TCP_CONNECTIONS"); }
        } unset;
        return Lanes::from_environment();
    };
    EXPECT_TRUE(set_to("auto").as_needed);
    EXPECT_TRUE(set_to("").as_needed);
    EXPECT_GT(set_to("auto").most, 1);
    EXPECT_EQ(set_to("16").most, 16);
    EXPECT_FALSE(set_to("1").as_needed);
    for (const char* wrong : {"0", "17", "-1", "4x", "many", "99999999999"}) {
        try {
            set_to(wrong);
            ADD_FAILURE() << wrong;
        } catch (const InvalidArgument& error) {
            EXPECT_NE(
                std::string(error.what()).find(std::string("TUTTI_TCP_CONNECTIONS=") + wrong + ": expected auto or"),
                std::string::npos)
                << error.what();
        }
    }
}

}  // namespace
}  // namespace tutti::transport
