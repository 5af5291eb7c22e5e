// Two ranks in one thread, whose calls in slots move when the test says so.
#include "group/slot_collectives.hpp"

#include "engine/slots-inl.hpp"
#include "group/rank_in_thread.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace tutti::detail {
namespace {

using engine::SlotState;
using test::RankInThread;
using test::two;
using transport::Arena;
using transport::ArenaLayout;
using Values = std::vector<float>;

struct RankWithSlots : RankInThread {
    using RankInThread::RankInThread;

    Agreement agreement{memory.arena(), memory.own_local(), memory.ranks_here()};
    SlotCollectives in_slots{{.ranks = all,
                              .memory = memory,
                              .recorder = recorder,
                              .inquiry = inquiry,
                              .flight = flight,
                              .agreement = agreement,
                              .copy = policies.small_copy}};
};

class SlotCollectivesOfTwo : public testing::Test {
 protected:
    // A call of a rank that its caller sees to its end.
    struct InHand {
        InHand(RankWithSlots& rank, Values& values)
            : of(rank), model(rank.description_of_all_reduce(values)), sequence(rank.collectives->next_number()) {
            state = of.in_slots.begin_as<Collective::all_reduce>(model->call, sequence);
        }
        bool advance() { return of.in_slots.advance(model->call, state, sequence, ticket); }

        RankWithSlots& of;
        std::shared_ptr<Operation> model;
        std::uint64_t sequence;
        SlotState state{};
        record::Ticket ticket = 0;
    };

    std::shared_ptr<Arena> arena_ = Arena::create_private(ArenaLayout::of(two, two));
    RankWithSlots first_{0, arena_}, second_{1, arena_};
};

TEST_F(SlotCollectivesOfTwo, end_when_the_other_rank_has_come_and_are_recorded_once) {
    Values a(2, 1.0F), b(2, 2.0F);
    InHand here(first_, a);
    EXPECT_FALSE(here.advance());
    EXPECT_TRUE(first_.in_slots.awaits(here.model->call, here.state, 1));
    std::vector<int> waits;
    first_.in_slots.add_waits(here.model->call, here.state, waits);
    EXPECT_EQ(waits, std::vector{1});
    const record::Ticket ticket = here.ticket;
    EXPECT_NE(ticket, 0U) << "its contribution is there";
    first_.in_slots.record(here.model->call, here.sequence, here.ticket);
    EXPECT_EQ(here.ticket, ticket);
    InHand there(second_, b);
    EXPECT_TRUE(there.advance());
    EXPECT_TRUE(here.advance());
    EXPECT_EQ(a, Values(2, 3.0F));
    EXPECT_EQ(b, a);
}

TEST_F(SlotCollectivesOfTwo, of_ranks_that_call_different_things_accuse_by_the_first_difference) {
    Values a(2, 1.0F), b(3, 2.0F);
    InHand here(first_, a), there(second_, b);
    here.advance();
    there.advance();
    ASSERT_EQ(second_.judge.accusations.size(), 1U);
    EXPECT_EQ(second_.judge.accusations[0].kind, rendezvous::VerdictKind::mismatch);
    EXPECT_EQ(second_.judge.accusations[0].rank, 0);
}

}  // namespace
}  // namespace tutti::detail
