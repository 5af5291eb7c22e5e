// Two mailboxes of one rank, which sends messages to itself by either.
#include "progress/mailboxes.hpp"

#include "group/group_of_one.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <memory>

namespace tutti::detail {
namespace {

/// There is nobody else.
struct NoStreams final : transport::Streams {
    transport::Stream* to(int /*peer*/) override { return nullptr; }
    transport::Stream* existing(int /*peer*/) override { return nullptr; }
};

class MailboxesOfOne : public testing::Test {
 protected:
    MailboxesOfOne() {
        mailboxes_.attach(alone_.flight.mailboxes().own());
        mailboxes_.add(other_);
    }

    test::GroupOfOne alone_;
    NoStreams streams_;
    std::shared_ptr<transport::Mailbox> other_ =
        std::make_shared<transport::Mailbox>(0, 1, 1, streams_, alone_.group->world().groups());
    Mailboxes mailboxes_{alone_.group->world().groups(), alone_.group->world().verdicts()};
};

TEST_F(MailboxesOfOne, a_mismatch_in_any_of_them_fails_the_world) {
    const OperationsInFlight::Guard guard(alone_.flight);
    transport::Transfer receive = alone_.transfer(true, 1, 2), send = alone_.transfer(false, 1);
    other_->post_receive(receive);
    mailboxes_.heed();
    EXPECT_FALSE(alone_.flight.failure()) << "nothing is wrong yet";
    other_->post_send(send);
    mailboxes_.heed();
    ASSERT_TRUE(alone_.flight.failure());
    EXPECT_THROW(std::rethrow_exception(alone_.flight.failure()), CollectiveMismatch);
}

TEST_F(MailboxesOfOne, messages_that_no_receive_has_met_are_recorded_as_long_as_they_are_here) {
    const OperationsInFlight::Guard guard(alone_.flight);
    const auto tags = [&] {
        mailboxes_.record_unmatched();
        std::vector<int> found;
        for (const auto& message : alone_.group->recorder().snapshot("").unmatched) found.push_back(message.tag);
        return found;
    };
    transport::Transfer first = alone_.transfer(false, 1), second = alone_.transfer(false, 3), own = first;
    own.channel = Channel::of_message(alone_.group->index(), OwnMessage::object_head);
    mailboxes_.own().post_send(first);
    mailboxes_.own().post_send(own);
    other_->post_send(second);
    EXPECT_EQ(tags(), (std::vector{1, 3})) << "without the library's own";
    transport::Transfer receive = alone_.transfer(true, 1);
    mailboxes_.own().post_receive(receive);
    EXPECT_EQ(tags(), std::vector{3});
    other_->drop_all();
    EXPECT_EQ(tags(), std::vector<int>{});
}

TEST_F(MailboxesOfOne, all_forget_their_messages_when_the_world_has_failed) {
    const OperationsInFlight::Guard guard(alone_.flight);
    transport::Transfer here = alone_.transfer(true, 1), there = alone_.transfer(true, 1);
    mailboxes_.own().post_receive(here);
    other_->post_receive(there);
    mailboxes_.drop_all();
    EXPECT_FALSE(mailboxes_.own().cancel_receive(here));
    EXPECT_FALSE(other_->cancel_receive(there));
}

TEST_F(MailboxesOfOne, one_that_is_gone_is_moved_no_more) {
    const OperationsInFlight::Guard guard(alone_.flight);
    const std::weak_ptr<transport::Mailbox> gone = std::exchange(other_, nullptr);
    EXPECT_TRUE(gone.expired()) << "its group alone keeps it";
    EXPECT_FALSE(mailboxes_.progress());
    mailboxes_.heed();
    EXPECT_EQ(mailboxes_.finish(), std::vector<int>());
}

TEST(Mailboxes, are_none_before_the_first_is_there) {
    const test::GroupOfOne alone;
    Mailboxes mailboxes(alone.group->world().groups(), alone.group->world().verdicts());
    EXPECT_FALSE(mailboxes.progress());
    mailboxes.drop_all();
}

}  // namespace
}  // namespace tutti::detail
