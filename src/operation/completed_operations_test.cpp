#include "operation/completed_operations.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

namespace tutti::detail {
namespace {

class Completed : public testing::Test {
 protected:
    std::shared_ptr<Operation> complete(const std::function<void()>& continuation) {
        auto operation = std::make_shared<Operation>();
        if (continuation) operation->on_completion(continuation);
        lock_.lock();
        operation->complete(nullptr);
        operations_.add(operation);
        operations_.deliver(lock_);
        return operation;
    }

    BiasedMutex lock_;
    CompletedOperations operations_;
};

TEST_F(Completed, operations_call_back_in_their_order_whichever_threads_complete_them) {
    std::vector<int> order;
    std::latch begun(1), go_on(1);
    std::thread first([&] {
        complete([&] {
            begun.count_down();
            go_on.wait();  // as a thread does that the system interrupts here
            order.push_back(1);
        });
    });
    begun.wait();
    complete([&] { order.push_back(2); });
    complete(nullptr)->on_completion([&] { order.push_back(3); });
    EXPECT_TRUE(order.empty()) << "the first has yet to run";
    go_on.count_down();
    first.join();
    EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
    complete([&] { order.push_back(4); });
    complete(nullptr)->on_completion([&] { order.push_back(5); });
    EXPECT_EQ(order.size(), 5U) << "nobody else calls any now";
}

TEST_F(Completed, operations_of_a_continuation_call_back_inside_it) {
    std::vector<int> order;
    complete([&] {
        complete([&] { order.push_back(1); });
        order.push_back(2);
    });
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace tutti::detail
