// When a stream has another connection.
#include "transport/tcp/lane_growth.hpp"

#include <gtest/gtest.h>
#include <tutti/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace tutti::transport {
namespace {

using namespace std::chrono_literals;

/// Traffic of a stream whose lanes are busy all the time, looked at every 10 ms.
class Traffic {
 public:
    /// `rate`: bytes a microsecond of all lanes together; `network`: the part of the time in which the network is why.
    int lanes_after(std::chrono::milliseconds time, double network, double (*rate)(int lanes)) {
        for (const Instant end = now_ + time; now_ < end; now_ += 10ms) {
            counts_.busy_us += static_cast<std::uint64_t>(10'000 * lanes_);
            counts_.network_us += static_cast<std::uint64_t>(10'000 * lanes_ * network);
            counts_.bytes += static_cast<std::uint64_t>(10'000 * rate(lanes_));
            while (growth_.wants(lanes_, now_, [this] { return counts_; })) ++lanes_;
        }
        return lanes_;
    }
    explicit Traffic(Lanes lanes) : growth_(lanes) {}

 private:
    LaneGrowth growth_;
    LaneCounts counts_;
    Instant now_ = Clock::now();
    int lanes_ = 1;
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
    EXPECT_EQ(Traffic({.most = 8}).lanes_after(5s, 1.0, of_each), 8);
    EXPECT_EQ(Traffic({.most = 6}).lanes_after(5s, 1.0, of_each), 6);
}

TEST(LaneGrowth, ends_when_it_has_brought_nothing_twice) {
    EXPECT_EQ(Traffic({.most = 16}).lanes_after(5s, 1.0, of_one_link), 4);
    EXPECT_EQ(Traffic({.most = 16}).lanes_after(5s, 1.0, of_four_links), 16);  // 8 and 16 bring nothing
}

TEST(LaneGrowth, is_not_made_where_the_ranks_are_slower_than_the_network) {
    EXPECT_EQ(Traffic({.most = 8}).lanes_after(5s, 0.3, of_each), 1);
}

TEST(LaneGrowth, waits_until_there_has_been_traffic_for_a_while) {
    EXPECT_EQ(Traffic({.most = 8}).lanes_after(80ms, 1.0, of_each), 1);
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
