// The thread that drives, and when, over work that the test moves by itself.
#include "progress/driver.hpp"

#include "core/interrupt.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <mutex>

namespace tutti::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Is busy until it has been moved so many times.
class Work : public Driven {
 public:
    explicit Work(int turns = 0) : left_(turns) {}
    bool move() override {
        const std::lock_guard lock(mutex_);
        mover_ = std::this_thread::get_id();
        ++moves;
        if (left_ == 0 || held_) return false;
        --left_;
        return true;
    }
    bool is_busy() override {
        const std::lock_guard lock(mutex_);
        return left_ > 0;
    }
    void look_after() override { ++looks; }
    bool has_failed() override { return false; }
    void pollables(std::vector<transport::Pollable>& into) override { into.clear(); }
    int news_fd() const noexcept override { return news_.get(); }
    void end_of_thread() noexcept override {}
    bool is_moved_by_threads() override { return by_threads; }
    bool only_awaits_sockets() override { return by_sockets; }

    void add(int turns) {
        const std::lock_guard lock(mutex_);
        left_ += turns;
    }
    void hold(bool held) {
        const std::lock_guard lock(mutex_);
        held_ = held;
    }
    std::thread::id mover() {
        const std::lock_guard lock(mutex_);
        return mover_;
    }
    bool done_within(milliseconds limit) {
        const Deadline end = Deadline::after(limit);
        while (is_busy() && !end.expired()) std::this_thread::sleep_for(milliseconds(1));
        return !is_busy();
    }
    std::atomic<int> looks{0};
    std::atomic<bool> by_threads{false}, by_sockets{false};
    std::atomic<int> moves{0};

 private:
    std::mutex mutex_;
    UniqueFd news_{::eventfd(0, EFD_CLOEXEC)};
    int left_;
    bool held_ = false;
    std::thread::id mover_;
};

class DriverOf : public testing::Test {
 protected:
    explicit DriverOf() { driver_.attach(work_, alone_); }
    transport::Neighbours alone_{0, 2, {0}, {0}, nullptr, transport::Reads::no};
    Work work_;
    Driver driver_{"test", 0};
};

TEST_F(DriverOf, a_thread_that_waits_drives) {
    work_.add(1000);
    EXPECT_EQ(driver_.wait([&] { return !work_.is_busy(); }, Deadline::never(), Deadline::never()),
              Driver::Waited::done);
    EXPECT_EQ(work_.mover(), std::this_thread::get_id());
}

TEST_F(DriverOf, a_wait_ends_at_its_limit_and_looks_after_things_meanwhile) {
    EXPECT_EQ(driver_.wait([] { return false; }, Deadline::after(milliseconds(30)), Deadline::never()),
              Driver::Waited::expired);
    EXPECT_GT(work_.looks, 0);
}

// A rank that yields looks at its work many times in such a time.
TEST_F(DriverOf, a_thread_that_waits_for_a_librarys_threads_sleeps_at_once) {
    driver_.waiting().choose(settings::Wait::automatic, 2, 2, 1'000'000);
    work_.by_threads = true;
    work_.add(1);
    work_.hold(true);
    EXPECT_EQ(driver_.wait([] { return false; }, Deadline::after(milliseconds(200)), Deadline::never()),
              Driver::Waited::expired);
    EXPECT_LE(work_.moves, 20);
    driver_.waiting().choose(settings::Wait::spin, 2, 2, 0);  // as it was told to
    work_.moves = 0;
    EXPECT_EQ(driver_.wait([] { return false; }, Deadline::after(milliseconds(200)), Deadline::never()),
              Driver::Waited::expired);
    EXPECT_GT(work_.moves, 20);
}

// News of a death come over a socket, which does not wake a rank that sleeps in memory.
TEST(Driver, who_brings_news_wakes_a_rank_that_sleeps_in_memory) {
    const auto arena = transport::Arena::create_private({.ranks = 2});
    const transport::Neighbours both{0, 2, {0, 1}, {0, 1}, arena, transport::Reads::no};
    Work work;
    Driver driver("test", 0);
    driver.attach(work, both);
    driver.waiting().choose(settings::Wait::sleep, 2, 2, 0);
    std::atomic<bool> over{false};
    const Instant start = Clock::now();
    std::thread sleeper([&] {
        driver.pause(1, std::chrono::hours(1));
        over = true;
    });
    while (!over && Clock::now() - start < seconds(60)) {
        driver.wake();
        std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_TRUE(over);
    if (!over) arena->ring_doorbell(0);
    sleeper.join();
}

TEST_F(DriverOf, a_signal_ends_a_wait_once) {
    request_interrupt();
    EXPECT_EQ(driver_.wait([] { return false; }, Deadline::after(seconds(60)), Deadline::never()),
              Driver::Waited::interrupted);
    EXPECT_FALSE(interrupt_requested());
}

TEST_F(DriverOf, the_progress_thread_drives_while_nobody_waits) {
    EXPECT_FALSE(driver_.lacks_thread());
    work_.add(100);
    driver_.drive_in_background();
    EXPECT_TRUE(work_.done_within(seconds(60)));
    EXPECT_NE(work_.mover(), std::this_thread::get_id());
    work_.add(100);  // it has gone to sleep, perhaps
    driver_.drive_in_background();
    EXPECT_TRUE(work_.done_within(seconds(60)));
    work_.add(100);
    driver_.drive_in_background(Driver::Start::at_once);
    EXPECT_TRUE(work_.done_within(seconds(60)));
}

TEST_F(DriverOf, the_progress_thread_goes_on_with_what_a_waiting_thread_has_left) {
    work_.hold(true);
    work_.add(10);
    driver_.drive_in_background();
    EXPECT_EQ(driver_.wait([] { return false; }, Deadline::after(milliseconds(20)), Deadline::never()),
              Driver::Waited::expired);
    work_.hold(false);
    EXPECT_TRUE(work_.done_within(seconds(60)));
    EXPECT_NE(work_.mover(), std::this_thread::get_id());
}

// A request that a socket would bring: other threads' short calls are not to be disturbed meanwhile.
TEST_F(DriverOf, the_progress_thread_leaves_the_work_alone_while_only_sockets_bring_it_and_other_work_wakes_it) {
    work_.by_sockets = true;
    work_.hold(true);
    work_.add(1);
    driver_.drive_in_background();
    std::this_thread::sleep_for(milliseconds(20));
    work_.moves = 0;
    std::this_thread::sleep_for(milliseconds(200));
    EXPECT_LE(work_.moves, 20);
    int late = 0;
    for (int turn = 0; turn < 10; ++turn) {
        work_.hold(false);
        work_.by_sockets = false;
        driver_.drive_in_background();
        if (!work_.done_within(milliseconds(25))) ++late;  // a doze lasts 50 ms
        ASSERT_TRUE(work_.done_within(seconds(60)));
        work_.hold(true);
        work_.by_sockets = true;
        work_.add(1);
        driver_.drive_in_background();
        std::this_thread::sleep_for(milliseconds(10));
    }
    EXPECT_LE(late, 5) << "of 10: a machine may be busy, but not that often";
}

TEST_F(DriverOf, stop_ends_the_thread_whatever_is_in_flight) {
    work_.hold(true);
    work_.add(1);
    driver_.drive_in_background();
    driver_.stop();
    EXPECT_TRUE(work_.is_busy());
}

}  // namespace
}  // namespace tutti::detail
