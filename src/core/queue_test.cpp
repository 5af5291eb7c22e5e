#include "core/queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>

namespace tutti {
namespace {

TEST(Queue, gives_what_it_gets_in_order) {
    std::mt19937 random(7);
    Queue<int> queue;
    std::deque<int> expected;
    for (int i = 0; i < 2000; ++i) {
        if (random() % 2 == 0) {
            queue.push(i);
            expected.push_back(i);
        } else if (!expected.empty()) {
            queue.pop();
            expected.pop_front();
        }
        ASSERT_EQ(queue.empty(), expected.empty());
        if (!expected.empty()) {
            ASSERT_EQ(queue.front(), expected.front());
        }
        ASSERT_TRUE(std::ranges::equal(queue.items(), expected));
    }
    queue.push(2000);
    expected.push_back(2000);
    EXPECT_EQ(queue.take(), std::vector<int>(expected.begin(), expected.end()));
    EXPECT_TRUE(queue.empty());
    queue.push(1);
    queue.push(2);
    queue.front() = 3;
    queue.pop();
    EXPECT_EQ(queue.front(), 2);
    queue.clear();
    EXPECT_TRUE(queue.empty());
    EXPECT_TRUE(queue.items().empty());
}

TEST(Queue, lets_go_of_what_has_left_it) {
    Queue<std::shared_ptr<int>> queue;
    const auto item = std::make_shared<int>(1);
    queue.push(item);
    queue.push(nullptr);
    queue.pop();
    EXPECT_EQ(item.use_count(), 1);
}

}  // namespace
}  // namespace tutti
