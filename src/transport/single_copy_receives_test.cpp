// Messages that are read where they lie: between two ranks of this process, and of one that has died.
#include "transport/single_copy_receives.hpp"

#include "support/copies_by_address.hpp"
#include "transport/test_stream.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>

namespace tutti::transport {
namespace {

using test::numbered;

std::uint64_t address_of(const std::vector<std::byte>& message) {
    return reinterpret_cast<std::uint64_t>(message.data());
}

class PullsOfTwo : public testing::Test {
 protected:
    Transfer receive_into(std::vector<std::byte>& target) {
        Transfer receive;
        receive.peer = 0;
        receive.target = target.data();
        receive.bytes = target.size();
        return receive;
    }

    std::shared_ptr<Arena> arena_ = Arena::create_private({.ranks = 2});
    Neighbours owner_{0, 2, {0, 1}, {::getpid(), ::getpid()}, arena_, Reads::yes};
    Neighbours reader_{1, 2, {0, 1}, {::getpid(), ::getpid()}, arena_, Reads::yes};
    SingleCopyReceives pulls_{&reader_};
    Bounce bounce_;
};

TEST_F(PullsOfTwo, are_offered_for_messages_of_a_length_that_the_peer_can_read) {
    const auto message = numbered(100'000);
    SingleCopyReceives own(&owner_);
    own.pull_from(1000);
    EXPECT_EQ(own.address_for(1, message), address_of(message));
    EXPECT_EQ(own.address_for(1, std::span(message).first(1000)), address_of(message));
    EXPECT_EQ(own.address_for(1, std::span(message).first(999)), 0U);
    EXPECT_TRUE(pulls_.can_read(0, address_of(message)));
    EXPECT_FALSE(pulls_.can_read(0, 0));

    const Neighbours closed(0, 2, {0, 1}, {::getpid(), ::getpid()}, arena_, Reads::no);
    EXPECT_EQ(SingleCopyReceives(&closed).address_for(1, message), 0U);
    EXPECT_FALSE(SingleCopyReceives(&closed).can_read(1, address_of(message)));
    EXPECT_EQ(SingleCopyReceives(nullptr).address_for(1, message), 0U);
    EXPECT_FALSE(SingleCopyReceives(nullptr).can_read(1, address_of(message)));
}

TEST_F(PullsOfTwo, read_a_bounded_piece_at_a_time_one_message_after_the_other) {
    const auto first = numbered(5 << 19), second = numbered(100, 9);  // 2.5 MB
    std::vector<std::byte> a(first.size()), b(second.size());
    Transfer to_a = receive_into(a), to_b = receive_into(b);
    pulls_.begin({0, 1, address_of(first), &to_a});
    pulls_.begin({0, 2, address_of(second), &to_b});
    std::size_t before = 0;
    for (SingleCopyReceives::Progress progress; !to_a.done; before = to_a.bytes_done) {
        progress = pulls_.progress(bounce_);
        EXPECT_EQ(progress.pull.id, 1U);
        EXPECT_EQ(progress.outcome, to_a.done ? SingleCopyReceives::Outcome::whole : SingleCopyReceives::Outcome::some);
        EXPECT_LE(to_a.bytes_done - before, std::size_t{1} << 20);
        EXPECT_EQ(to_b.bytes_done, 0U);
    }
    EXPECT_EQ(a, first);
    const SingleCopyReceives::Progress last = pulls_.progress(bounce_);
    EXPECT_EQ(last.outcome, SingleCopyReceives::Outcome::whole);
    EXPECT_EQ(last.pull.id, 2U);
    EXPECT_EQ(b, second);
    EXPECT_TRUE(pulls_.empty());
}

TEST_F(PullsOfTwo, combine_pieces_in_order) {
    const auto message = numbered(3 * Bounce::usual_bytes + 8);
    std::vector<std::byte> got;
    Transfer receive;
    receive.peer = 0;
    receive.bytes = message.size();
    receive.element_bytes = 8;
    const auto append = [&](std::size_t offset, std::span<const std::byte> bytes) {
        ASSERT_EQ(offset, got.size());
        got.insert(got.end(), bytes.begin(), bytes.end());
    };
    receive.on_bytes = ByteSink::of(append);
    pulls_.begin({0, 1, address_of(message), &receive});
    for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(pulls_.progress(bounce_).outcome, SingleCopyReceives::Outcome::some);
    EXPECT_EQ(pulls_.progress(bounce_).outcome, SingleCopyReceives::Outcome::whole);
    EXPECT_EQ(got, message);
}

TEST_F(PullsOfTwo, end_in_the_middle_when_the_owner_takes_its_messages_back) {
    const auto message = numbered(3 << 20);
    std::vector<std::byte> target(message.size());
    Transfer receive = receive_into(target);
    pulls_.begin({0, 1, address_of(message), &receive});
    EXPECT_EQ(pulls_.progress(bounce_).outcome, SingleCopyReceives::Outcome::some);
    const std::size_t before = receive.bytes_done;
    owner_.withdraw_offers();
    const SingleCopyReceives::Progress progress = pulls_.progress(bounce_);
    EXPECT_EQ(progress.outcome, SingleCopyReceives::Outcome::revoked);
    EXPECT_EQ(progress.pull.receive, &receive);
    EXPECT_EQ(receive.bytes_done, before) << "bytes read since may have any value";
    EXPECT_FALSE(receive.done);
    EXPECT_TRUE(pulls_.empty());
}

TEST_F(PullsOfTwo, of_a_process_that_has_died_are_closed_and_the_next_goes_on) {
    if (!test::copies_by_address()) GTEST_SKIP() << test::no_copies;
    const auto message = numbered(100'000);
    const pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    ASSERT_GT(child, 0);
    const std::shared_ptr<Arena> arena = Arena::create_private({.ranks = 3});
    const Neighbours reader(2, 3, {0, 1, 2}, {::getpid(), child, ::getpid()}, arena, Reads::yes);
    SingleCopyReceives pulls(&reader);
    std::vector<std::byte> a(message.size()), b(message.size());
    Transfer from_the_dead = receive_into(a), from_here = receive_into(b);
    from_the_dead.peer = 1;
    EXPECT_TRUE(pulls.can_read(1, address_of(message)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    pulls.begin({1, 1, address_of(message), &from_the_dead});
    pulls.begin({0, 2, address_of(message), &from_here});
    EXPECT_EQ(pulls.progress(bounce_).outcome, SingleCopyReceives::Outcome::closed);
    EXPECT_FALSE(from_the_dead.done);
    EXPECT_EQ(pulls.progress(bounce_).outcome, SingleCopyReceives::Outcome::whole);
    EXPECT_EQ(b, message);
}

TEST_F(PullsOfTwo, are_dropped) {
    const auto message = numbered(3 << 20);
    std::vector<std::byte> target(message.size());
    Transfer receive = receive_into(target);
    pulls_.begin({0, 1, address_of(message), &receive});
    (void)pulls_.progress(bounce_);
    pulls_.drop_all();
    EXPECT_TRUE(pulls_.empty());
    EXPECT_FALSE(receive.done);
}

}  // namespace
}  // namespace tutti::transport
