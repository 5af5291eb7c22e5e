#include "ddp/report.hpp"

#include <tutti/debug.hpp>

#include <gtest/gtest.h>

namespace tutti::ddp {
namespace {

using namespace std::chrono_literals;

constexpr Clock::time_point at(std::chrono::nanoseconds when) {
    return Clock::time_point(when);
}

TEST(Durations, overlap_is_the_part_of_communication_while_gradients_are_computed) {
    const Durations d = durations({at(10ns), at(30ns), at(70ns), at(50ns), at(100ns)});
    EXPECT_EQ(d.forward, 20ns);
    EXPECT_EQ(d.backward, 40ns);
    EXPECT_EQ(d.communication, 50ns);
    EXPECT_EQ(d.overlap, 20ns);
    // All has come before the last gradient; only the last one is sent.
    EXPECT_EQ(durations({at(10ns), at(30ns), at(70ns), at(50ns), at(60ns)}).overlap, 10ns);
    EXPECT_EQ(durations({at(10ns), at(30ns), at(70ns), at(71ns), at(90ns)}).overlap, 0ns);
}

TEST(Statistics, look_at_the_first_iterations_and_at_every_hundredth) {
    set_debug_level(DebugLevel::detail);
    for (const std::uint64_t iteration : {1, 2, 10, 100, 700}) EXPECT_TRUE(Statistics::wants(iteration)) << iteration;
    for (const std::uint64_t iteration : {11, 20, 101}) EXPECT_FALSE(Statistics::wants(iteration)) << iteration;
    set_debug_level(DebugLevel::info);
    EXPECT_FALSE(Statistics::wants(1));
    set_debug_level(DebugLevel::off);
}

TEST(Timing, an_iteration_that_is_not_looked_at_takes_no_moments) {
    Timing timing;
    EXPECT_FALSE(timing.is_on());
    timing.begin(true);
    EXPECT_TRUE(timing.is_on());
    timing.begin(false);
    EXPECT_FALSE(timing.is_on());
}

}  // namespace
}  // namespace tutti::ddp
