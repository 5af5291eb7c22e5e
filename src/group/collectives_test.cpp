// The collectives of two ranks in one thread: each moves when the test says so.
#include "group/collectives.hpp"

#include "group/rank_in_thread.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace tutti::detail {
namespace {

using rendezvous::VerdictKind;
using std::chrono::seconds;
using test::RankInThread;
using test::text_of;
using test::two;
using transport::Arena;
using transport::ArenaLayout;

class CollectivesOfTwo : public testing::Test {
 protected:
    std::shared_ptr<Arena> arena_ = Arena::create_private(ArenaLayout::of(two, two));
    RankInThread first_{0, arena_}, second_{1, arena_};
};

TEST_F(CollectivesOfTwo, come_to_their_end_in_slots_and_by_a_schedule) {
    for (const std::size_t count : {2, 300'000}) {
        std::vector<float> a(count, 1.0F), b(count, 2.0F);
        const auto here = first_.all_reduce(a), there = second_.all_reduce(b);
        EXPECT_EQ(here->run.state, OperationState::queued);
        first_.flight.move();
        EXPECT_EQ(here->run.state, count == 2 ? OperationState::in_slots : OperationState::scheduled);
        EXPECT_EQ(first_.collectives->waits_for(*here), std::vector{1});
        for (int turn = 0; turn < 1000 && !(here->done() && there->done()); ++turn) {
            second_.flight.move();
            first_.flight.move();
        }
        ASSERT_TRUE(here->done() && there->done());
        EXPECT_EQ(here->run.state, OperationState::over);
        EXPECT_EQ(a, std::vector<float>(count, 3.0F));
        EXPECT_EQ(b, a);
    }
}

TEST_F(CollectivesOfTwo, answer_what_other_ranks_ask_about_them) {
    std::vector<float> a(2), b(2);
    const auto here = first_.all_reduce(a);
    EXPECT_FALSE(first_.collectives->has_finished(1));
    EXPECT_FALSE(first_.collectives->has_finished(2)) << "it has not begun";
    EXPECT_EQ(first_.collectives->fingerprint_at(1), 0U) << "it waits for its turn";
    first_.flight.move();
    EXPECT_EQ(first_.collectives->fingerprint_at(1), here->call.fingerprint);
    second_.all_reduce(b);
    second_.flight.move();
    first_.flight.move();
    EXPECT_TRUE(first_.collectives->has_finished(1));
    EXPECT_TRUE(first_.collectives->has_sent_all(1, 1));
}

TEST_F(CollectivesOfTwo, end_well_though_a_rank_has_died_whose_data_had_all_come) {
    for (const std::size_t count : {2, 300'000}) {
        RankInThread first(0, arena_ = Arena::create_private(ArenaLayout::of(two, two))), second(1, arena_);
        std::vector<float> a(count, 1.0F), b(count, 2.0F);
        const auto here = first.all_reduce(a), there = second.all_reduce(b);
        while (!here->done() && !there->done()) {
            first.flight.move();
            if (!here->done()) second.flight.move();
        }
        ASSERT_NE(here->done(), there->done()) << "one has not looked since";
        RankInThread& survivor = here->done() ? second : first;
        const Operation& last = here->done() ? *there : *here;
        survivor.hear(VerdictKind::peer_lost);
        survivor.flight.move();
        ASSERT_TRUE(last.done());
        EXPECT_EQ(last.error(), nullptr) << text_of(last);
        EXPECT_EQ(a, std::vector<float>(count, 3.0F));
        EXPECT_EQ(b, a);
        EXPECT_TRUE(survivor.flight.failure()) << "nothing more comes";
    }
}

TEST_F(CollectivesOfTwo, fail_by_name_when_a_rank_has_died_whose_data_are_missing) {
    std::vector<float> a(2), later(2);
    const auto here = first_.all_reduce(a), next = first_.all_reduce(later);
    first_.flight.move();
    first_.hear(VerdictKind::peer_lost);
    first_.flight.move();
    ASSERT_TRUE(here->done() && next->done());
    EXPECT_THROW(std::rethrow_exception(here->error()), PeerLost);
    EXPECT_EQ(text_of(*here), "all_reduce #1 in group \"test\" (2 ranks): the other has gone");
    EXPECT_EQ(here->run.state, OperationState::over);
    EXPECT_EQ(next->run.state, OperationState::over);
}

TEST_F(CollectivesOfTwo, fail_though_data_have_come_where_a_rank_has_aborted) {
    std::vector<float> a(2), b(2);
    const auto here = first_.all_reduce(a), there = second_.all_reduce(b);
    first_.flight.move();
    second_.flight.move();
    ASSERT_TRUE(there->done());
    first_.hear(VerdictKind::aborted);
    first_.flight.move();
    ASSERT_TRUE(here->done());
    EXPECT_THROW(std::rethrow_exception(here->error()), Aborted);
}

// A surplus of blocks shows at the end of the rank that did not expect them.
TEST_F(CollectivesOfTwo, fail_by_what_shows_when_their_own_part_is_over) {
    std::vector<float> values(2);
    const auto operation = first_.all_reduce(values);
    operation->move_to(OperationState::over);
    {
        const OperationsInFlight::Guard guard(first_.flight);
        first_.flight.fail(std::make_exception_ptr(CollectiveMismatch("they meant something else", {})));
    }
    ASSERT_TRUE(operation->done());
    EXPECT_EQ(text_of(*operation), "they meant something else");
}

TEST_F(CollectivesOfTwo, of_ranks_that_disagree_accuse) {
    std::vector<float> a(2), b(3);
    const auto here = first_.all_reduce(a);
    second_.all_reduce(b);
    second_.flight.move();
    first_.flight.move();
    ASSERT_TRUE(here->done());
    ASSERT_EQ(first_.judge.accusations.size(), 1U);
    EXPECT_EQ(first_.judge.accusations[0].kind, VerdictKind::mismatch);
    EXPECT_NE(
        text_of(*here).find("rank 0 called all_reduce of float32 × 2, sum, but rank 1 called all_reduce of float32 "
                            "× 3, sum"),
        std::string::npos)
        << text_of(*here);
}

TEST_F(CollectivesOfTwo, accuse_the_rank_that_they_wait_for_when_their_time_is_up) {
    Instant now = Clock::now();
    Clock::simulate(&now);
    std::vector<float> a(2);
    const auto here = first_.all_reduce(a);
    first_.flight.move();
    first_.flight.look_after();
    EXPECT_FALSE(here->done());
    now += seconds(2);
    first_.flight.look_after();
    Clock::simulate(nullptr);
    ASSERT_TRUE(here->done());
    EXPECT_EQ(text_of(*here),
              "all_reduce #1 in group \"test\" (2 ranks): timed out after 2.000 s of 1.000 s; rank 0 has "
              "nothing from rank 1");
}

// Two groups of the same ranks, whose collectives go by messages. The other rank has said goodbye behind its messages,
// so a look after the first group's collective takes what has come, for the second group's too.
TEST_F(CollectivesOfTwo, of_two_groups_may_end_while_one_of_them_is_looked_after) {
    Instant now = Clock::now();
    Clock::simulate(&now);
    algorithm::Layout apart;
    apart.host_of = {0, 1};
    apart.machines = two;
    Planner first_planner(apart, 0, false), second_planner(apart, 1, false);
    const backend::Devices elsewhere{{Device::Type::cpu, "of the test"}};
    GroupMemory first_memory{first_.all, {0, 0}, 0, elsewhere, first_.neighbours, first_.flight.mutex()};
    GroupMemory second_memory{second_.all, {0, 0}, 0, elsewhere, second_.neighbours, second_.flight.mutex()};
    const auto group = [&](std::uint32_t index, RankInThread& rank, Planner& planner, const GroupMemory& memory) {
        return Collectives({index, rank.all, planner, memory, rank.recorder, rank.inquiry, rank.flight, rank.verdicts,
                            rank.groups, rank.policies, rank.neighbours});
    };
    Collectives a_here = group(1, first_, first_planner, first_memory),
                b_here = group(2, first_, first_planner, first_memory);
    Collectives a_there = group(1, second_, second_planner, second_memory),
                b_there = group(2, second_, second_planner, second_memory);
    std::vector<float> v(2, 1.0F), w(2, 1.0F), x(2, 2.0F), y(2, 2.0F);
    const auto one = first_.all_reduce(v, a_here), other = first_.all_reduce(w, b_here);
    first_.flight.move();
    EXPECT_EQ(one->run.state, OperationState::scheduled);
    const auto one_there = second_.all_reduce(x, a_there), other_there = second_.all_reduce(y, b_there);
    second_.flight.move();
    ASSERT_TRUE(one_there->done() && other_there->done());
    first_.verdicts.hear({VerdictKind::left, 1, {}});
    now += std::chrono::milliseconds(300);
    first_.flight.look_after();
    Clock::simulate(nullptr);
    EXPECT_TRUE(one->done() && other->done());
    EXPECT_EQ(w, std::vector<float>(2, 3.0F));
    EXPECT_FALSE(first_.flight.failure());
}

TEST(OperationState, moves_on_and_never_back) {
    using enum OperationState;
    EXPECT_TRUE(may_move(queued, in_slots));
    EXPECT_TRUE(may_move(in_slots, scheduled)) << "what does not fit in slots";
    EXPECT_TRUE(may_move(relayed, scheduled)) << "what could not be passed on";
    EXPECT_FALSE(may_move(scheduled, in_slots));
    EXPECT_FALSE(may_move(over, over));
    Operation operation;
    operation.move_to(over);
    EXPECT_THROW(operation.move_to(scheduled), InternalError);
}

}  // namespace
}  // namespace tutti::detail
