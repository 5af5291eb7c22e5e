// Short calls of a rank whose peer is in the same thread: a call ends at once if the peer's values have come before it,
// and becomes an operation if they have not.
#include "group/short_calls.hpp"

#include "group/rank_in_thread.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace tutti::detail {
namespace {

using test::RankInThread;
using test::two;
using transport::Arena;
using transport::ArenaLayout;
using Values = std::vector<float>;

class ShortCallsOfTwo : public testing::Test {
 protected:
    ShortCallsOfTwo() {
        driver_.attach(first_.flight, first_.neighbours);
        driver_.brief_waiting().choose(settings::Wait::automatic, two, 1, 20);
    }

    // The first rank's call. True: it has been made.
    bool all_reduce(Values& values) {
        const auto model = first_.description_of_all_reduce(values);
        struct Longer {
            ShortCallsOfTwo& of;
            const Operation& model;
        } longer{*this, *model};
        return calls_.run(model->call, {[](const void* call) {
                                            const auto& [of, of_model] = *static_cast<const Longer*>(call);
                                            ++of.made_;
                                            return of_model.again();
                                        },
                                        &longer});
    }
    // The second rank makes its call, and moves as far as it goes.
    std::shared_ptr<Operation> other_calls(Values& values) {
        auto operation = second_.all_reduce(values);
        second_.flight.move();
        return operation;
    }

    std::shared_ptr<Arena> arena_ = Arena::create_private(ArenaLayout::of(two, two));
    RankInThread first_{0, arena_}, second_{1, arena_};
    Driver driver_{"test", 0};
    std::function<void(Operation&)> on_wait_ = [](Operation&) { FAIL() << "it has become an operation"; };
    int made_ = 0;
    const Waiting* waits_in_ = nullptr;
    ShortCalls calls_{{.ranks = first_.all,
                       .collectives = *first_.collectives,
                       .recorder = first_.recorder,
                       .flight = first_.flight,
                       .driver = driver_,
                       .policies = first_.policies,
                       .neighbours = first_.neighbours,
                       .wait_for_call = [this](Operation& call, Waiting& waiting) {
                           waits_in_ = &waiting;
                           on_wait_(call);
                       }}};
};

TEST_F(ShortCallsOfTwo, end_at_once_when_all_that_they_need_has_come) {
    for (int round = 1; round <= 20; ++round) {
        Values a(2, static_cast<float>(round)), b(2, 2.0F);
        const auto there = other_calls(b);
        ASSERT_TRUE(all_reduce(a));
        EXPECT_EQ(a, Values(2, static_cast<float>(round) + 2.0F));
        second_.flight.move();
        ASSERT_TRUE(there->done());
        EXPECT_EQ(b, a);
        EXPECT_EQ(there->run.sequence, static_cast<std::uint64_t>(round)) << "both count it";
    }
    EXPECT_EQ(made_, 0);
}

TEST_F(ShortCallsOfTwo, go_on_as_one_operation_when_the_others_take_longer) {
    Values a(2, 1.0F), b(2, 2.0F);
    int waits = 0;
    on_wait_ = [&](Operation& operation) {
        ++waits;
        EXPECT_EQ(operation.run.state, OperationState::in_slots);
        EXPECT_EQ(operation.run.sequence, 1U);
        EXPECT_EQ(first_.collectives->waits_for(operation), std::vector{1});
        EXPECT_TRUE(first_.flight.mutex().try_lock()) << "the call holds the lock no more";
        first_.flight.mutex().unlock();
        const auto there = other_calls(b);
        first_.flight.move();
        second_.flight.move();
        EXPECT_TRUE(operation.done() && there->done());
    };
    ASSERT_TRUE(all_reduce(a));
    EXPECT_EQ(waits, 1);
    EXPECT_EQ(made_, 1);
    EXPECT_EQ(a, Values(2, 3.0F));
    EXPECT_EQ(b, a);
}

// A call right behind a longer one waits as that does: other ranks may need the core for the longer one yet.
TEST_F(ShortCallsOfTwo, learn_for_themselves_how_to_wait_unless_they_follow_a_longer_one) {
    Values a(2, 1.0F), b(2, 2.0F);
    on_wait_ = [&](Operation& /*call*/) {
        other_calls(b);
        first_.flight.move();
        second_.flight.move();
    };
    for (const bool follows_longer : {false, true, false}) {
        if (follows_longer) {
            const auto here = first_.all_reduce(a), there = other_calls(b);
            first_.flight.move();
            second_.flight.move();
            ASSERT_TRUE(here->done() && there->done());
        }
        waits_in_ = nullptr;
        ASSERT_TRUE(all_reduce(a));
        EXPECT_EQ(waits_in_, follows_longer ? &driver_.waiting() : &driver_.brief_waiting());
    }
}

TEST_F(ShortCallsOfTwo, leave_it_to_an_operation_where_another_one_is_in_flight) {
    Values before(2, 1.0F), a(2, 1.0F);
    const auto earlier = first_.all_reduce(before);
    EXPECT_FALSE(all_reduce(a));
    EXPECT_EQ(first_.collectives->next_number(), earlier->run.sequence + 1) << "it has taken no number";
    EXPECT_EQ(a, Values(2, 1.0F));
}

TEST_F(ShortCallsOfTwo, leave_it_to_an_operation_to_say_what_is_wrong) {
    Values a(2, 1.0F);
    first_.hear(rendezvous::VerdictKind::peer_lost);
    EXPECT_FALSE(all_reduce(a)) << "there is news";
    first_.flight.move();
    ASSERT_TRUE(first_.flight.failure());
    EXPECT_FALSE(all_reduce(a)) << "the world has failed";
    EXPECT_EQ(first_.collectives->next_number(), 1U);
}

TEST_F(ShortCallsOfTwo, are_none_any_more_when_they_are_closed) {
    Values a(2, 1.0F), b(2, 2.0F);
    const auto there = other_calls(b);
    calls_.close();
    EXPECT_FALSE(all_reduce(a));
    EXPECT_EQ(first_.collectives->next_number(), 1U);
    EXPECT_FALSE(there->done());
}

TEST_F(ShortCallsOfTwo, throw_what_they_find_when_the_others_have_called_something_else) {
    Values a(2, 1.0F), b(3, 2.0F);
    other_calls(b);
    try {
        all_reduce(a);
        FAIL() << "it went well";
    } catch (const DistError& error) {
        EXPECT_NE(std::string(error.what()).find("float32 × 3"), std::string::npos) << error.what();
    }
    EXPECT_EQ(first_.judge.accusations.size(), 1U);
    EXPECT_EQ(made_, 0);
    EXPECT_FALSE(all_reduce(a)) << "and nothing begins any more";
}

}  // namespace
}  // namespace tutti::detail
