#include "operation/continuations.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;

/// A queue's name: never looked at.
const Member* queue(std::size_t number) {
    static const std::vector<char> places(8);
    return reinterpret_cast<const Member*>(&places[number]);
}

std::thread::id run_one(const Member* name) {
    std::promise<std::thread::id> ran;
    auto result = ran.get_future();
    run_later(name, [&] { ran.set_value(std::this_thread::get_id()); });
    return result.get();
}

TEST(Continuations, of_one_queue_run_in_order_on_one_thread_that_is_not_the_caller_s) {
    std::vector<int> order;
    for (int i = 0; i < 1000; ++i) run_later(queue(0), [&order, i] { order.push_back(i); });
    const auto thread = run_one(queue(0));
    EXPECT_NE(thread, std::this_thread::get_id());
    EXPECT_EQ(thread, run_one(queue(0)));
    ASSERT_EQ(order.size(), 1000U);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(Continuations, of_different_queues_may_wait_for_one_another) {
    const auto both = std::make_shared<std::latch>(3);
    for (const std::size_t number : {1, 2}) run_later(queue(number), [both] { both->arrive_and_wait(); });
    both->arrive_and_wait();
}

TEST(Continuations, are_destroyed_before_the_next_one_runs) {
    const auto held = std::make_shared<int>(1);
    run_later(queue(3), [held] {});
    run_one(queue(3));
    EXPECT_EQ(held.use_count(), 1);
}

TEST(Continuations, may_add_to_their_own_queue) {
    std::promise<void> end;
    run_later(queue(4), [&] { run_later(queue(4), [&] { end.set_value(); }); });
    EXPECT_EQ(end.get_future().wait_for(10s), std::future_status::ready);
}

TEST(Continuations, get_a_new_thread_when_the_old_one_has_gone) {
    run_one(queue(5));
    std::this_thread::sleep_for(1200ms);
    run_one(queue(5));
}

#ifndef __SANITIZE_THREAD__  // which forbids threads in a child of several
TEST(Continuations, of_a_forked_child_run_on_threads_of_its_own) {
    run_one(queue(6));  // its thread is idle, but there, when the child is made
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(20);  // in case no thread runs it
        run_one(queue(6));
        ::_exit(0);
    }
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    run_one(queue(6));
}
#endif

}  // namespace
}  // namespace tutti::detail
