#include "operation/completion.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace tutti::detail {
namespace {

struct Reopened : Completion {
    using Completion::reopen;
};

/// An event that counts the streams which wait for it.
struct Counted final : DeviceEvent {
    void make_wait(Stream /*waiting*/) override { ++waits; }
    int waits = 0;
};

class Callbacks : public testing::Test {
 protected:
    void ask() {
        completion_.on_issue([this] { said_ += "i"; });
        completion_.on_completion([this] { said_ += "c"; });
    }
    Reopened completion_;
    std::string said_;
};

TEST_F(Callbacks, are_called_once_and_at_once_when_it_is_over) {
    ask();
    completion_.complete(nullptr);
    EXPECT_TRUE(completion_.done());
    EXPECT_EQ(said_, "") << "whoever completes it holds a lock";
    completion_.run_continuations();
    EXPECT_EQ(said_, "ic");
    completion_.run_continuations();
    EXPECT_EQ(said_, "ic");
    ask();
    EXPECT_EQ(said_, "icic");
}

TEST_F(Callbacks, of_its_issue_come_before_it_is_over) {
    ask();
    const auto event = std::make_shared<Counted>();
    completion_.enqueue(event);
    EXPECT_EQ(said_, "i");
    EXPECT_TRUE(completion_.issued());
    EXPECT_FALSE(completion_.done());
    completion_.make_wait({});
    EXPECT_EQ(event->waits, 1);
    completion_.complete(nullptr);
    completion_.run_continuations();
    EXPECT_EQ(said_, "ic");
    completion_.make_wait({});
    EXPECT_EQ(event->waits, 1) << "it is over: nothing is left to wait for";
}

TEST_F(Callbacks, are_called_at_once_when_it_has_ended_without_any) {
    completion_.complete(nullptr);
    EXPECT_TRUE(completion_.close_unless_awaited());
    ask();
    EXPECT_EQ(said_, "ic");
}

TEST_F(Callbacks, keep_it_open_until_they_are_called) {
    completion_.on_completion([this] { said_ += "c"; });
    completion_.complete(nullptr);
    EXPECT_FALSE(completion_.close_unless_awaited());
    EXPECT_EQ(said_, "");
    completion_.run_continuations();
    EXPECT_EQ(said_, "c");
}

TEST_F(Callbacks, are_called_at_once_of_one_that_nobody_knew) {
    completion_.complete_unseen();
    EXPECT_TRUE(completion_.done());
    ask();
    EXPECT_EQ(said_, "ic");
}

TEST_F(Callbacks, come_again_when_it_is_used_another_time) {
    completion_.complete(std::make_exception_ptr(std::runtime_error("no")));
    completion_.run_continuations();
    EXPECT_NE(completion_.error(), nullptr);
    completion_.reopen();
    EXPECT_FALSE(completion_.issued());
    EXPECT_EQ(completion_.error(), nullptr);
    ask();
    EXPECT_EQ(said_, "");
    completion_.complete(nullptr);
    completion_.run_continuations();
    EXPECT_EQ(said_, "ic");
    EXPECT_EQ(completion_.error(), nullptr);
}

TEST_F(Callbacks, are_neither_lost_nor_doubled_when_it_completes_meanwhile) {
    constexpr int rounds = 2000;
    for (int round = 0; round < rounds; ++round) {
        Completion completion;
        std::thread completes([&] {
            completion.complete(nullptr);
            completion.run_continuations();
        });
        std::atomic<int> calls{0};
        completion.on_completion([&] { ++calls; });
        completes.join();
        ASSERT_EQ(calls, 1);
    }
}

}  // namespace
}  // namespace tutti::detail
