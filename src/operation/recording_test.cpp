#include "operation/recording.hpp"

#include "operation/channel.hpp"
#include "operation/fingerprint.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

namespace tutti::detail {
namespace {

/// Of rank 1 in a group of the ranks 5, 1 and 3 of a world.
class RecordingOfThree : public testing::Test {
 protected:
    record::Entry last() const { return recorder_.snapshot("").entries.back(); }
    const Ranks ranks_{{5, 1, 3}, 1, 8};
    record::Recorder recorder_{"three", ranks_.rank(), 3, &group::Fingerprint::describe, ranks_.in_world()};
};

TEST_F(RecordingOfThree, names_the_other_side_of_a_message_as_a_rank_of_the_group) {
    Operation send;
    send.is_collective = false;
    send.transfer.peer = 3;
    send.transfer.bytes = 12;
    send.run.ticket = recording::begin(recorder_, ranks_, send);
    EXPECT_EQ(last().peer, 2);
    EXPECT_EQ(last().kind, record::Kind::send);
    EXPECT_EQ(recorder_.counters().bytes, 12U);
    EXPECT_EQ(last().state, record::State::started);
    recording::end(recorder_, ranks_, send, false);
    EXPECT_EQ(last().state, record::State::failed);
}

TEST_F(RecordingOfThree, keeps_the_tags_of_callers_and_none_of_the_library_s_own_messages) {
    Operation send;
    send.is_collective = false;
    send.transfer.peer = 3;
    send.transfer.channel = Channel::of_message(4, 17);
    recording::begin(recorder_, ranks_, send);
    EXPECT_EQ(last().tag, 17);
    send.transfer.channel = Channel::of_message(4, OwnMessage::object_head);
    recording::begin(recorder_, ranks_, send);
    EXPECT_EQ(last().tag, -1);
}

TEST_F(RecordingOfThree, learns_the_source_of_a_message_from_any_rank_when_it_has_come) {
    Operation receive;
    receive.is_collective = false;
    receive.is_receive = true;
    receive.transfer.peer = transport::any_source;
    receive.run.ticket = recording::begin(recorder_, ranks_, receive);
    EXPECT_EQ(last().peer, -1);
    receive.transfer.peer = 5;
    recording::end(recorder_, ranks_, receive, true);
    EXPECT_EQ(last().peer, 0);
    EXPECT_EQ(last().state, record::State::completed);
}

TEST_F(RecordingOfThree, counts_what_this_rank_contributes_to_a_collective) {
    Operation gather;
    gather.run.sequence = 41;
    gather.call = {.collective = Collective::gather, .root = 2, .dtype = DType::int32};
    const std::array<std::uint64_t, 3> counts{7, 8, 9};
    gather.call.set_counts(counts);
    recording::begin(recorder_, ranks_, gather);
    EXPECT_EQ(last().sequence, 41U);
    EXPECT_EQ(recorder_.counters().bytes, 32U);
    EXPECT_EQ(last().peer, 2) << "the root";
    EXPECT_EQ(last().state, record::State::enqueued);
}

TEST_F(RecordingOfThree, counts_a_dead_rank_of_the_group_once_and_no_other) {
    recording::failure(recorder_, ranks_, std::make_exception_ptr(PeerLost("rank 3 has died", {.peer = 3})));
    recording::gone(recorder_, ranks_, 3);
    recording::gone(recorder_, ranks_, 4);
    EXPECT_EQ(recorder_.counters().gone, 1);
    EXPECT_STREQ(recorder_.counters().failure, "peer_lost");
}

TEST_F(RecordingOfThree, counts_a_wait_from_the_begin_of_the_operation) {
    Operation operation;
    operation.run.started = Instant(std::chrono::seconds(10));
    recording::waits(recorder_, operation, std::array{2}, Instant(std::chrono::seconds(9)),
                     Instant(std::chrono::seconds(12)));
    EXPECT_DOUBLE_EQ(recorder_.counters().waited_s.at(2), 2.0);
    EXPECT_DOUBLE_EQ(recorder_.counters().waited_s.at(0), 0.0);
}

}  // namespace
}  // namespace tutti::detail
