#include "core/patience.hpp"

#include "core/interrupt.hpp"
#include "core/rate_limit.hpp"

#include <gtest/gtest.h>
#include <tutti/interrupt.hpp>

#include <regex>
#include <string>
#include <thread>

namespace tutti {
namespace {

using namespace std::chrono_literals;

std::size_t lines(const std::string& text, const std::string& pattern) {
    const std::regex expression(pattern);
    return static_cast<std::size_t>(
        std::distance(std::sregex_iterator(text.begin(), text.end(), expression), std::sregex_iterator()));
}

TEST(Patience, says_once_after_five_seconds_what_the_outermost_wait_is_for) {
    ::testing::internal::CaptureStderr();
    const auto wait = [](std::string name, Clock::duration time, bool inside) {
        const Patience outer([&] { return name; });
        for (const Deadline end = Deadline::after(time); !end.expired(); std::this_thread::sleep_for(20ms)) {
            const Patience inner([] { return std::string("something inside"); });
            if (inside)
                still_waiting();
            else
                check_wait(Deadline::never(), nullptr, "test");
        }
    };
    std::thread other([&] { wait("another thread's", 5500ms, true); });
    std::thread brief([&] { wait("a short one", 4s, false); });
    wait("rank 3", 5500ms, false);
    other.join();
    brief.join();
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(lines(text, "still waiting after 5 s for rank 3"), 1U) << text;
    EXPECT_EQ(lines(text, "still waiting after 5 s for another thread's"), 1U) << text;
    EXPECT_EQ(lines(text, "still waiting"), 2U) << text;
}

TEST(Patience, says_nothing_where_nothing_is_waited_for) {
    ::testing::internal::CaptureStderr();
    {
        const Patience over([] { return std::string("what is over"); });
    }
    check_wait(Deadline::never(), nullptr, "test");
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(RateLimit, lets_one_in_a_minute_through_and_counts_the_others) {
    RateLimit seldom;
    const Instant start = Clock::now();
    EXPECT_EQ(seldom.happened(start), 1U);
    for (int i = 1; i < 60; ++i) EXPECT_FALSE(seldom.happened(start + i * 1s)) << i;
    EXPECT_EQ(seldom.happened(start + 61s), 60U);
    EXPECT_FALSE(seldom.happened(start + 62s));
}

}  // namespace
}  // namespace tutti
