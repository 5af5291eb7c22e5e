// A rank that leaves alone: nobody has to be waited for.
#include "world/departure.hpp"

#include "group/group_of_one.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <memory>

namespace tutti::detail {
namespace {

class DepartureOfOne : public testing::Test {
 protected:
    bool has_left() {
        const OperationsInFlight::Guard guard(alone_.flight);
        return departure_.has_left();
    }
    std::shared_ptr<Operation> post(bool is_receive) {
        const OperationsInFlight::Guard guard(alone_.flight);
        auto message = alone_.message(is_receive, 1);
        alone_.flight.post(message);
        return message;
    }

    test::GroupOfOne alone_;
    Departure& departure_ = alone_.group->world().departure();
};

TEST_F(DepartureOfOne, ends_messages_that_nothing_has_met) {
    const auto receive = post(true);
    departure_.leave();
    ASSERT_TRUE(receive->done());
    EXPECT_THROW(std::rethrow_exception(receive->error()), Aborted);
    EXPECT_TRUE(has_left());
}

TEST_F(DepartureOfOne, from_a_group_leaves_the_world_as_it_is) {
    const auto send = post(false);
    departure_.leave(*alone_.group);
    ASSERT_TRUE(send->done());
    EXPECT_THROW(std::rethrow_exception(send->error()), PeerLost);
    EXPECT_FALSE(has_left());
    const OperationsInFlight::Guard guard(alone_.flight);
    EXPECT_FALSE(alone_.flight.failure());
}

TEST_F(DepartureOfOne, happens_once_and_nothing_begins_afterwards) {
    EXPECT_FALSE(has_left());
    departure_.leave_by(Deadline::never(), "the test ends");
    departure_.leave();
    EXPECT_TRUE(has_left());
    EXPECT_FALSE(alone_.group->world().end("again")) << "there is nothing left to end";
    EXPECT_THROW(alone_.message(true, 1), Aborted);
}

}  // namespace
}  // namespace tutti::detail
