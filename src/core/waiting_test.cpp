#include "core/waiting.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using settings::Wait;
using Turn = Waiting::Turn;

const Instant begin = Instant{} + 1h;

class WaitingOf {
 public:
    WaitingOf(Wait wanted, bool own_core) { waiting.choose(wanted, own_core ? 2 : 4, 2, 200); }
    /// The number of turns until it sleeps.
    int turns_before_sleep() const {
        int turns = 0;
        while (turns < 2'000'000 && waiting.turn(turns + 1) != Turn::sleep) ++turns;
        return turns;
    }
    Waiting waiting;
};

TEST(Waiting, a_rank_with_a_core_of_its_own_looks_then_yields_then_sleeps) {
    const WaitingOf of(Wait::automatic, true);
    EXPECT_TRUE(of.waiting.has_own_core());
    EXPECT_EQ(of.waiting.turn(1), Turn::look);
    EXPECT_EQ(of.waiting.turn(Waiting::looks_of_own_core), Turn::look);
    EXPECT_EQ(of.waiting.turn(Waiting::looks_of_own_core + 1), Turn::yield);
    EXPECT_EQ(of.turns_before_sleep(), Waiting::looks_of_own_core + 200);
}

TEST(Waiting, a_rank_that_shares_its_core_yields_at_once) {
    const WaitingOf of(Wait::automatic, false);
    EXPECT_FALSE(of.waiting.has_own_core());
    EXPECT_EQ(of.waiting.turn(1), Turn::yield);
    EXPECT_EQ(of.turns_before_sleep(), 200);
}

TEST(Waiting, what_the_setting_says_is_what_a_rank_does) {
    EXPECT_EQ(WaitingOf(Wait::sleep, true).waiting.turn(1), Turn::sleep);
    EXPECT_EQ(WaitingOf(Wait::yield, true).waiting.turn(1), Turn::yield);
    EXPECT_EQ(WaitingOf(Wait::spin, false).waiting.turn(Waiting::looks_of_spin), Turn::look);
    for (const Wait wanted : {Wait::spin, Wait::yield}) {
        WaitingOf of(wanted, false);
        of.waiting.took_turn(begin, begin + 20ms);
        EXPECT_FALSE(of.waiting.sleeps_at_once());
    }
}

TEST(Waiting, a_lost_turn_makes_it_sleep_at_once_for_a_multiple_of_that_turn) {
    WaitingOf of(Wait::automatic, true);
    of.waiting.took_turn(begin, begin + 300us);  // the kernel had something to do
    EXPECT_FALSE(of.waiting.sleeps_at_once());
    const Instant lost = begin + 8ms;
    of.waiting.took_turn(begin, lost);
    EXPECT_TRUE(of.waiting.sleeps_at_once());
    EXPECT_EQ(of.turns_before_sleep(), 0);
    of.waiting.slept(lost + 31ms);
    EXPECT_TRUE(of.waiting.sleeps_at_once());
    of.waiting.slept(lost + 33ms);
    EXPECT_FALSE(of.waiting.sleeps_at_once());
    EXPECT_EQ(of.waiting.turn(1), Turn::look);
}

TEST(Waiting, beside_a_lasting_computation_it_hardly_loses_turns) {
    WaitingOf of(Wait::automatic, false);
    Instant now = begin;
    Instant::duration lost{};
    while (now < begin + 60s) {
        if (of.waiting.sleeps_at_once()) {
            now += 20us;
            of.waiting.slept(now);
        } else {
            of.waiting.took_turn(now, now + 8ms);
            now += 8ms;
            lost += 8ms;
        }
    }
    EXPECT_LT(lost, 60s / 50);
    // And when that has ended, it soon waits in the quickest way.
    const Instant end = now;
    while (of.waiting.sleeps_at_once()) of.waiting.slept(now += 20us);
    EXPECT_LT(now, end + 1s);
}

TEST(Waiting, a_lost_turn_is_no_lesson_where_sleeping_would_have_cost_more) {
    WaitingOf of(Wait::automatic, false);
    Instant now = begin;
    for (int lost = 0; lost < 20; ++lost) {
        for (int wait = 0; wait < 500; ++wait, now += 2us) {
            of.waiting.took_turn(now, now + 2us);
            of.waiting.spared();
        }
        of.waiting.took_turn(now, now + 8ms);
        EXPECT_FALSE(of.waiting.sleeps_at_once());
    }
    for (int wait = 0; wait < 10; ++wait) of.waiting.spared();
    of.waiting.took_turn(now, now + 8ms);
    EXPECT_TRUE(of.waiting.sleeps_at_once());
}

TEST(Waiting, what_other_ranks_of_the_core_do_in_their_turns_is_no_lesson) {
    Waiting waiting;
    waiting.choose(Wait::automatic, 8, 2, 200);
    waiting.took_turn(begin, begin + 2ms);
    EXPECT_FALSE(waiting.sleeps_at_once());
    waiting.took_turn(begin, begin + 20ms);
    EXPECT_TRUE(waiting.sleeps_at_once());
}

TEST(Waiting, a_single_disturbance_is_soon_forgotten) {
    WaitingOf of(Wait::automatic, true);
    of.waiting.took_turn(begin, begin + 2ms);
    of.waiting.slept(begin + 11ms);
    EXPECT_FALSE(of.waiting.sleeps_at_once());
    of.waiting.took_turn(begin + 1s, begin + 1s + 2ms);
    of.waiting.slept(begin + 1s + 11ms);
    EXPECT_FALSE(of.waiting.sleeps_at_once());
    of.waiting.took_turn(begin + 2s, begin + 1h);  // it was stopped
    of.waiting.slept(begin + 1h + 1s);
    EXPECT_FALSE(of.waiting.sleeps_at_once());
}

TEST(Waiting, a_thread_beside_its_own_computation_never_looks_and_sleeps_to_begin_with_on_the_same_core) {
    Waiting alone, shared;
    alone.choose_beside(Wait::spin, false, 200);
    shared.choose_beside(Wait::automatic, true, 200);
    EXPECT_EQ(alone.turn(1), Turn::yield);
    EXPECT_EQ(shared.turn(1), Turn::sleep);
    alone.took_turn(begin, begin + 500us);
    EXPECT_EQ(alone.turn(1), Turn::sleep);
    Waiting sleeping;
    sleeping.choose_beside(Wait::sleep, false, 200);
    sleeping.slept(begin);
    EXPECT_EQ(sleeping.turn(1), Turn::sleep);
}

TEST(Waiting, a_row_of_looks_is_as_long_as_it_helps) {
    WaitingOf of(Wait::automatic, true);
    int looks = 0;
    for (Waiting::Looks row(of.waiting); row.again();) ++looks;
    EXPECT_EQ(looks, of.waiting.sleeps_at_once() ? looks : Waiting::looks_of_own_core);
    of.waiting.took_turn(begin, begin + 8ms);
    EXPECT_FALSE(Waiting::Looks(of.waiting).again());
}

}  // namespace
}  // namespace tutti
