// Messages of a rank to itself, which end when the test says so.
#include "progress/posted_messages.hpp"

#include "group/group_of_one.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

namespace tutti::detail {
namespace {

class PostedMessagesOfOne : public testing::Test {
 protected:
    std::shared_ptr<Operation> add(bool is_receive, int tag) {
        auto message = alone_.message(is_receive, tag);
        posted_.add(message);
        return message;
    }
    std::shared_ptr<Operation> add_and_post(bool is_receive, int tag) {
        auto message = add(is_receive, tag);
        if (is_receive)
            alone_.group->mailbox().post_receive(message->transfer);
        else
            alone_.group->mailbox().post_send(message->transfer);
        return message;
    }

    test::GroupOfOne alone_;
    PostedMessages posted_{alone_.group->world().verdicts()};
};

TEST_F(PostedMessagesOfOne, end_well_when_their_bytes_have_moved_and_not_before) {
    const OperationsInFlight::Guard guard(alone_.flight);
    const auto receive = add_and_post(true, 1), send = add_and_post(false, 1), other = add_and_post(true, 2);
    EXPECT_TRUE(posted_.end_done());
    ASSERT_TRUE(receive->done() && send->done());
    EXPECT_EQ(receive->error(), nullptr);
    EXPECT_EQ(alone_.to[0], alone_.from[0]);
    EXPECT_FALSE(other->done());
    EXPECT_EQ(posted_.front(), other);
    EXPECT_FALSE(posted_.end_done()) << "nothing has moved since";
    ASSERT_TRUE(alone_.group->mailbox().cancel_receive(other->transfer));
}

TEST_F(PostedMessagesOfOne, keep_their_order_in_memory_that_is_used_again) {
    const OperationsInFlight::Guard guard(alone_.flight);
    for (int round = 0; round < 3; ++round) {
        const auto first = add(true, 1), second = add(true, 2);
        EXPECT_EQ(posted_.front(), first);
        first->transfer.done = true;
        EXPECT_TRUE(posted_.end_done());
        EXPECT_EQ(posted_.front(), second);
        second->transfer.done = true;
        EXPECT_TRUE(posted_.end_done());
        EXPECT_TRUE(posted_.empty());
    }
}

TEST_F(PostedMessagesOfOne, tell_the_first_deadline_and_who_has_missed_it) {
    const OperationsInFlight::Guard guard(alone_.flight);
    const Instant now = Clock::now();
    const auto patient = add(true, 1), hasty = add(true, 2);
    hasty->deadline = Deadline::at(now + std::chrono::seconds(1));
    EXPECT_EQ(posted_.first_deadline(Instant::max()), hasty->deadline.when());
    EXPECT_EQ(posted_.first_deadline(now), now) << "no later than the limit";
    EXPECT_EQ(posted_.overdue(now), nullptr);
    EXPECT_EQ(posted_.overdue(now + std::chrono::seconds(2)), hasty);
    EXPECT_FALSE(patient->done() || hasty->done()) << "to tell is not to end";
}

TEST_F(PostedMessagesOfOne, are_in_vain_when_their_receiver_has_refused_them) {
    const OperationsInFlight::Guard guard(alone_.flight);
    const auto send = add(false, 1), other = add(false, 2);
    send->transfer.peer = other->transfer.peer = 1;  // another rank
    send->transfer.refused = true;
    other->transfer.refused = other->transfer.done = true;
    EXPECT_EQ(posted_.in_vain(), std::vector{send}) << "one that is done needs nobody any more";
}

TEST_F(PostedMessagesOfOne, that_nothing_has_met_end_when_their_rank_leaves) {
    const OperationsInFlight::Guard guard(alone_.flight);
    const auto receive = add_and_post(true, 1), send = add_and_post(false, 2);
    const test::GroupOfOne elsewhere;
    EXPECT_EQ(posted_.awaited_receivers(elsewhere.group.get()), std::vector<int>());
    EXPECT_FALSE(receive->done() || send->done()) << "they are of another group";
    EXPECT_EQ(posted_.awaited_receivers(alone_.group.get()), std::vector<int>()) << "nobody is waited for";
    ASSERT_TRUE(receive->done() && send->done());
    EXPECT_THROW(std::rethrow_exception(receive->error()), Aborted);
    EXPECT_THROW(std::rethrow_exception(send->error()), PeerLost);
    EXPECT_TRUE(posted_.empty());
}

TEST_F(PostedMessagesOfOne, all_end_with_the_error_of_their_world) {
    const OperationsInFlight::Guard guard(alone_.flight);
    const auto receive = add(true, 1), send = add(false, 2);
    posted_.drop(std::make_exception_ptr(std::runtime_error("it has failed")));
    ASSERT_TRUE(receive->done() && send->done());
    EXPECT_THROW(std::rethrow_exception(send->error()), std::runtime_error);
    EXPECT_TRUE(posted_.empty());
}

}  // namespace
}  // namespace tutti::detail
