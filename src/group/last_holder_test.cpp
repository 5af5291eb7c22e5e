// A continuation that holds the last reference to its world.
#include "group/group_of_one.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace tutti::detail {
namespace {

TEST(Continuation, may_hold_its_world_last) {
    test::GroupOfOne alone;
    const std::weak_ptr<Group> group = alone.group;
    bool called = false;
    {
        const OperationsInFlight::Guard guard(alone.flight);
        const auto operation = alone.message(false, 1);
        operation->on_completion([&, held = std::move(alone.group)] { called = true; });
        alone.flight.complete(operation, nullptr);
    }
    EXPECT_TRUE(called);
    EXPECT_TRUE(group.expired());
}

}  // namespace
}  // namespace tutti::detail
