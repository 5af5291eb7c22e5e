// Stacks of threads, and the places in the source of which they consist.
#include "record/stacks.hpp"
#include "record/source_lines.hpp"

#include "core/deadline.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <string>
#include <thread>

namespace tutti::record {
namespace {

using namespace std::chrono_literals;

TEST(SourceLines, find_nothing_new_when_their_time_is_up_and_nothing_where_there_is_no_code) {
    const void* const here = [] [[gnu::noinline]] { return __builtin_return_address(0); }();
    EXPECT_EQ(SourceLines(0ms).of(here), "");
    const std::string place = SourceLines(10s).of(here);
    EXPECT_NE(place.find("TestBody"), std::string::npos) << place;
    EXPECT_EQ(SourceLines(0ms).of(here), place) << "it is known by now";
    int variable = 0;
    EXPECT_EQ(SourceLines(10s).of(&variable), "");
    EXPECT_EQ(SourceLines(10s).at(nullptr), "");
}

[[gnu::noinline]] void wait_here(std::atomic<int>& here, const std::shared_future<void>& ended) {
    ++here;  // not before the call: a look may come at once
    ended.wait();
    std::atomic_signal_fence(std::memory_order_seq_cst);  // so that it does more after the call
}

// On the CPU of the thread that asks, the other one often has not left the handler when the next question comes.
TEST(Stacks, show_a_thread_that_is_asked_again_before_it_is_out_of_the_handler) {
    cpu_set_t all;
    ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    std::promise<void> end;
    std::atomic<int> ready{0};
    std::thread other([&, ended = end.get_future().share()] { wait_here(ready, ended); });
    while (ready < 1) std::this_thread::yield();
    std::string text;
    bool shown = true;
    for (const Deadline end_of_looks = Deadline::after(500ms); shown && !end_of_looks.expired();) {
        text = stacks_of_threads(5s);
        shown = text.find("wait_here") != std::string::npos;
    }
    EXPECT_TRUE(shown) << text;
    end.set_value();
    other.join();
    ::sched_setaffinity(0, sizeof all, &all);
}

TEST(Stacks, show_where_other_threads_are_and_leave_those_alone_that_block_signals) {
    std::promise<void> end;
    std::shared_future<void> ended = end.get_future().share();
    std::atomic<int> ready{0};
    const auto wait_with_mask = [&](int (*fill)(sigset_t*)) {
        sigset_t blocked;
        fill(&blocked);
        ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
        wait_here(ready, ended);
    };
    std::thread open(wait_with_mask, &::sigemptyset), blocked(wait_with_mask, &::sigfillset);
    while (ready < 2) std::this_thread::yield();
    set_stack_source([](std::chrono::milliseconds) { return std::string("  another language\n"); });
    for (int i = 0; i < 2; ++i) {
        const std::string text = stacks_of_threads(5s);
        EXPECT_TRUE(text.starts_with("  another language\n  thread ")) << text;
        EXPECT_NE(text.find("    #0 "), std::string::npos) << text;
        EXPECT_NE(text.find("wait_here"), std::string::npos) << text;
        EXPECT_NE(text.find("it blocks signals: no stack"), std::string::npos) << text;
    }
    set_stack_source(nullptr);
    end.set_value();
    open.join();
    blocked.join();
}

}  // namespace
}  // namespace tutti::record
