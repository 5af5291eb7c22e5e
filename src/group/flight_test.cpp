// Operations that complete on several threads. No message is sent: the test completes them itself.
#include "group/flight.hpp"

#include "group/group_of_one.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

namespace tutti::detail {
namespace {

class FlightOfOne : public testing::Test {
 protected:
    void complete(std::function<void()> continuation) {
        const Flight::Guard guard(alone_.flight);
        const auto operation = alone_.message(false, 1);
        operation->on_completion(std::move(continuation));
        alone_.flight.complete(operation, nullptr);
    }

    test::GroupOfOne alone_;
};

TEST_F(FlightOfOne, calls_continuations_in_the_order_of_completion_whichever_thread_completes) {
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
    complete([&] { order.push_back(3); });
    EXPECT_TRUE(order.empty()) << "the first has yet to run";
    go_on.count_down();
    first.join();
    EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
    complete([&] { order.push_back(4); });
    EXPECT_EQ(order.size(), 4U) << "nobody else calls any now";
}

TEST_F(FlightOfOne, calls_at_once_what_a_continuation_completes) {
    std::vector<int> order;
    complete([&] {
        complete([&] { order.push_back(1); });
        order.push_back(2);
    });
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(FlightOfOne, may_go_with_the_last_operation_that_is_completed) {
    std::weak_ptr<Group> group = alone_.group;
    bool called = false;
    {
        Flight& flight = alone_.flight;
        const Flight::Guard guard(flight);
        const auto operation = alone_.message(false, 1);
        operation->on_completion([&, held = std::move(alone_.group)] { called = true; });
        flight.complete(operation, nullptr);
    }
    EXPECT_TRUE(called);
    EXPECT_TRUE(group.expired());
}

}  // namespace
}  // namespace tutti::detail
