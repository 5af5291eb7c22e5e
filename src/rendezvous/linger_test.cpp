// How long a rank that leaves stays.
#include "rendezvous/linger.hpp"

#include <gtest/gtest.h>

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;

TEST(Lingers, are_over_after_a_second) {
    Instant now{1h};
    Linger stay(now);
    for (int look = 1; look < 100; ++look) EXPECT_FALSE(stay.is_over(now += 10ms));
    EXPECT_TRUE(stay.is_over(now += 10ms));
}

// Found by simulation: a rank that had been stopped while it left went before it noticed that a neighbour was silent.
TEST(Lingers, do_not_count_time_in_which_the_process_was_stopped) {
    Instant now{1h};
    Linger stay(now);
    EXPECT_FALSE(stay.is_over(now += 1min));
    for (int look = 1; look < 9; ++look) EXPECT_FALSE(stay.is_over(now += 100ms));
    EXPECT_TRUE(stay.is_over(now += 100ms));
}

}  // namespace
}  // namespace tutti::rendezvous
