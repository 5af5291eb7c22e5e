// Loops that outlive their ranks: their results are those of an undisturbed run, bit for bit.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"

#include <tutti/newcomers.hpp>
#include <tutti/resilient.hpp>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

namespace tutti::test {
namespace {

constexpr std::int64_t training_steps = 400;
constexpr std::size_t weights_count = 3000;

class Resilient : public LeftoverCheck, public ::testing::WithParamInterface<TransportKind> {};
INSTANTIATE_TEST_SUITE_P(Over, Resilient, ::testing::Values(TransportKind::shm, TransportKind::tcp),
                         [](const auto& instance) { return to_string(instance.param); });

/// A training whose result depends on each step, its order, and the ranks' places: a step done twice or left out shows.
struct Training {
    std::vector<float> weights = std::vector<float>(weights_count, 1.0F);
    std::int64_t done = 0;     // counted by the steps themselves
    std::string history = "";  // goes by save and load

    void step(std::int64_t number, const ProcessGroup& group) {
        std::vector<float> all(weights_count);
        const auto rank = group.rank();
        for (std::size_t i = 0; i < weights_count; ++i) {
            all[i] = weights[i] * (0.001F * static_cast<float>(rank + 1)) +
                     static_cast<float>((number * 31 + rank * 7 + static_cast<std::int64_t>(i)) % 13);
        }
        weights[0] += 1;  // a step that fails has changed the state already
        all_reduce(all, {.group = group});
        weights[0] -= 1;
        for (std::size_t i = 0; i < weights_count; ++i) weights[i] = weights[i] * 0.99F + all[i] * 0.01F;
        ++done;
        if (number % 50 == 0) history += std::to_string(number) + " ";
    }
    std::string result() const {
        std::uint64_t hash = 14695981039346656037ULL;
        for (const float w : weights) {
            std::uint32_t bits = 0;
            std::memcpy(&bits, &w, sizeof bits);
            hash = (hash ^ bits) * 1099511628211ULL;
        }
        return std::to_string(hash) + " " + std::to_string(done) + " " + history;
    }
    ResilientOptions options(const RankProcess& me, const ProcessGroup& group) {
        return {.state = {weights, done},
                .save = [this] { return history; },
                .load = [this](const std::string& text) { history = text; },
                .steps = training_steps,
                .group = group,
                .place = me.store(),
                .timeout = 20s};
    }
};

ProcessGroup first_or_newcomers(const RankProcess& me, TransportKind transport, int size) {
    if (me.rank() < size) {
        return ProcessGroup({.store = me.store(),
                             .rank = me.rank(),
                             .world_size = size,
                             .timeout = 20s,
                             .transport = transport,
                             .determinism = Determinism::run_to_run});
    }
    for (;;) {  // as a launcher's newcomers do in init_process_group
        try {
            return join({.place = me.store(), .timeout = 20s});
        } catch (const DistBackendError&) {
        }
    }
}

/// What an undisturbed run of four ranks gives.
std::string undisturbed(TransportKind transport) {
    static std::string results[2];
    std::string& result = results[transport == TransportKind::tcp ? 1 : 0];
    if (!result.empty()) return result;
    Job job(4, [transport](const RankProcess& me) {
        Training training;
        ProcessGroup group = first_or_newcomers(me, transport, 4);
        for (std::int64_t i = 0; i < training_steps; ++i) training.step(i, group);
        me.report(training.result());
        group.destroy();
    });
    const auto report = job.next();
    result = report ? report->text : "nothing";
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(job.wait(rank), 0);
    return result;
}

/// Runs the training of four ranks.
void train(const RankProcess& me, TransportKind transport, const std::function<void(ResilientOptions&)>& change = {},
           const std::function<void(Resilience&)>& before = {}) {
    Training training;
    ResilientOptions options = training.options(me, first_or_newcomers(me, transport, 4));
    if (change) change(options);
    ProcessGroup group = resilient(options, [&](Resilience& r) {
        if (before) before(r);
        training.step(r.step(), r.group());
    });
    me.report(std::to_string(group.size()) + ": " + training.result());
    group.destroy();
}

/// The results of `count` ranks.
void expect_results(Job& job, int count, const std::string& expected) {
    for (int i = 0; i < count; ++i) {
        const auto report = job.next(40s);
        ASSERT_TRUE(report) << i << " of " << count << " reports came";
        EXPECT_EQ(report->text, expected) << "rank " << report->rank;
    }
}

void slowly(Resilience& /*unused*/) {
    std::this_thread::sleep_for(1ms);
}

TEST_P(Resilient, a_run_without_deaths_is_as_one_without_the_loop) {
    Job job(4, [](const RankProcess& me) { train(me, GetParam()); });
    expect_results(job, 4, "4: " + undisturbed(GetParam()));
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(job.wait(rank), 0);
}

TEST_P(Resilient, newcomers_take_the_places_of_ranks_that_are_killed_at_any_time) {
    for (const unsigned seed : {1U, 2U, 3U, 4U}) {
        std::mt19937 random(seed);
        Job job(7, [](const RankProcess& me) { train(me, GetParam(), {}, slowly); });
        std::vector<int> alive{0, 1, 2, 3, 4, 5, 6};
        for (int kill = 0; kill < 3; ++kill) {
            std::this_thread::sleep_for(std::chrono::milliseconds(40 + random() % 120));
            const auto victim = alive.begin() + static_cast<std::ptrdiff_t>(random() % alive.size());
            job.signal(*victim, SIGKILL);
            alive.erase(victim);
        }
        expect_results(job, 4, "4: " + undisturbed(GetParam()));
        if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
    }
}

TEST_P(Resilient, two_ranks_that_are_killed_at_once_are_replaced) {
    Job job(6, [](const RankProcess& me) { train(me, GetParam(), {}, slowly); });
    std::this_thread::sleep_for(150ms);
    job.signal(0, SIGKILL);
    job.signal(3, SIGKILL);
    expect_results(job, 4, "4: " + undisturbed(GetParam()));
    for (const int rank : {1, 2, 4, 5}) EXPECT_EQ(job.wait(rank), 0);
}

TEST_P(Resilient, a_second_death_while_the_group_recovers_is_recovered_from) {
    for (const int later : {0, 1, 2, 4}) {  // survivors, and the newcomer that is taken in
        for (const auto after : {1ms, 6ms, 15ms, 40ms}) {
            Job job(6, [](const RankProcess& me) { train(me, GetParam(), {}, slowly); });
            std::this_thread::sleep_for(100ms);
            job.signal(3, SIGKILL);
            std::this_thread::sleep_for(after);
            job.signal(later, SIGKILL);
            const auto begin = SteadyClock::now();
            expect_results(job, 4, "4: " + undisturbed(GetParam()));
            EXPECT_LT(SteadyClock::now() - begin, 15s);
            if (::testing::Test::HasFailure()) FAIL() << "rank " << later << " after " << after.count() << " ms";
        }
    }
}

TEST_P(Resilient, a_newcomer_that_is_killed_while_it_adopts_is_replaced) {
    Job job(6, [](const RankProcess& me) {
        train(
            me, GetParam(),
            [&](ResilientOptions& o) {
                if (me.rank() == 4) o.load = [](const std::string&) { (void)::raise(SIGKILL); };
            },
            slowly);
    });
    std::this_thread::sleep_for(100ms);
    job.signal(1, SIGKILL);
    expect_results(job, 4, "4: " + undisturbed(GetParam()));
}

TEST_P(Resilient, without_newcomers_the_survivors_go_on_and_those_that_come_later_are_taken_in) {
    Job job(5, [](const RankProcess& me) {
        if (me.rank() == 4) (void)Store(me.store()).get("fewer", 20s);
        train(
            me, GetParam(), [](ResilientOptions& o) { o.wait = 0ms; },
            [&](Resilience& r) {
                std::this_thread::sleep_for(3ms);
                if (r.group().size() == 3) Store(me.store()).set("fewer", "");
            });
    });
    std::this_thread::sleep_for(100ms);
    job.signal(2, SIGKILL);
    std::vector<std::string> texts;
    for (const Report& r : job.collect(4, 40s)) texts.emplace_back(r.text);
    ASSERT_EQ(texts.size(), 4U);
    for (const std::string& text : texts) {
        EXPECT_EQ(text, texts.front());
        EXPECT_EQ(text.find("4: "), 0U) << text;
        EXPECT_NE(text.find(" 400 0 50 100 150 200 250 300 350 "), std::string::npos) << text;
    }
    for (const int rank : {0, 1, 3, 4}) EXPECT_EQ(job.wait(rank), 0);
}

TEST_P(Resilient, with_fewer_ranks_than_min_size_all_are_told_the_same) {
    Job job(4, [](const RankProcess& me) {
        me.report_end_of([&] {
            train(
                me, GetParam(),
                [](ResilientOptions& o) {
                    o.wait = 50ms;
                    o.min_size = 4;
                },
                slowly);
        });
    });
    std::this_thread::sleep_for(100ms);
    job.signal(2, SIGKILL);
    for (int i = 0; i < 3; ++i) {
        const auto report = job.next();
        ASSERT_TRUE(report);
        EXPECT_STREQ(report->text, "resilient: 3 ranks are left: expected min_size, 4, or more");
        EXPECT_EQ(report->code, static_cast<int>(ErrorCode::peer_lost));
    }
}

TEST_P(Resilient, an_error_of_a_step_ends_the_loop_there_and_the_others_go_on) {
    Job job(5, [](const RankProcess& me) {
        me.report_end_of([&] {
            train(me, GetParam(), {}, [&](Resilience& r) {
                if (me.rank() == 1 && r.step() == 37) throw std::runtime_error("of the program");
                slowly(r);
            });
        });
        if (me.rank() == 1) (void)Store(me.store()).get("over", 30s);  // it lives on
    });
    int ended = 0, finished = 0;
    for (const Report& report : job.collect(9, 5s)) {
        if (report.rank == 1) {
            EXPECT_STREQ(report.text, "of the program");
            ++ended;
        } else if (std::string_view(report.text) != "done") {
            EXPECT_EQ(report.text, "4: " + undisturbed(GetParam()));
            ++finished;
        }
    }
    EXPECT_EQ(ended, 1);
    EXPECT_EQ(finished, 4);
    job.store().set("over", "");
}

TEST_P(Resilient, a_step_that_always_fails_ends_the_loop_after_max_failures) {
    Job job(4, [](const RankProcess& me) {
        int failed = 0;
        me.report_end_of([&] {
            train(
                me, GetParam(), [](ResilientOptions& o) { o.max_failures = 2; },
                [&](Resilience& r) {
                    if (r.step() != 20) return;
                    ++failed;
                    if (r.group().rank() == 1) ProcessGroup(r.group()).abort("rank 1 is unwell");
                    barrier({.group = r.group()});
                });
        });
        me.report(std::to_string(failed));
    });
    int counted = 0;
    for (const Report& report : job.collect(8, 30s)) {
        if (report.code != 0) continue;
        // The abort may reach another rank while it is at the boundary.
        EXPECT_LE(std::stoi(report.text), 3);
        EXPECT_TRUE(report.rank != 1 || report.text == std::string_view("3")) << report.text;
        ++counted;
    }
    EXPECT_EQ(counted, 4);
}

TEST_P(Resilient, any_rank_may_stop_all) {
    Job job(4, [](const RankProcess& me) {
        Training training;
        ProcessGroup group = resilient(training.options(me, first_or_newcomers(me, GetParam(), 4)), [&](Resilience& r) {
            training.step(r.step(), r.group());
            if (r.group().rank() == 2 && r.step() == 122) r.stop();
        });
        me.report(std::to_string(training.done));
        group.destroy();
    });
    expect_results(job, 4, "123");
}

TEST(ResilientAlone, undo_takes_the_place_of_copies_and_two_loops_may_follow_each_other) {
    ProcessGroup group({.store = HashStore(), .rank = 0, .world_size = 1});
    int kept = 0, state = 0;
    const auto step = [&](Resilience& r) { state = static_cast<int>(r.step()) + 1; };
    for (int loop = 0; loop < 2; ++loop) {
        (void)resilient({.state = {state}, .keep = [&] { ++kept; }, .undo = [] {}, .steps = 9, .group = group}, step);
        EXPECT_EQ(state, 9);
    }
    EXPECT_EQ(kept, 18);
}

// The group is aborted here while it waits for a newcomer that does not join: the rank goes on in another one.
TEST(ResilientAlone, a_rank_whose_own_abort_ends_a_group_in_the_making_is_not_left_out) {
    Store store = HashStore();
    ProcessGroup group({.store = store, .rank = 0, .world_size = 1});
    Store place = PrefixStore("newcomers/newcomers", store);
    place.add("asked", 1);
    place.set("who/1", "a newcomer that does not join");
    std::thread aborts([&] {
        place.wait({"plan/1"}, 20s);
        group.abort("for a reason of its own");
    });
    int steps = 0, recoveries = 0;
    const ResilientOptions options{
        .steps = 3, .group = group, .place = store, .wait = 0ms, .max_size = 2, .timeout = 20s};
    EXPECT_NO_THROW((void)resilient(options, [&](Resilience& r) {
        ++steps;
        recoveries = r.recoveries();
    }));
    aborts.join();
    EXPECT_EQ(steps, 3);
    EXPECT_EQ(recoveries, 1);
}

// Rank 0 does by hand what the loop does there: it passes a boundary at which rank 1 fails, and looks for newcomers.
TEST(ResilientAlone, a_rank_that_fails_while_another_finds_no_newcomer_meets_it_again) {
    const Store store = HashStore();
    const auto member = [&](int rank) { return ProcessGroup({.store = store, .rank = rank, .world_size = 2}); };
    std::thread rank_1([&] {
        const ResilientOptions options{.steps = 0, .group = member(1), .place = store, .wait = 0ms, .timeout = 10s};
        EXPECT_NO_THROW(EXPECT_EQ(resilient(options, [](Resilience&) {}).size(), 2));
    });
    const auto meet = [](const ProcessGroup& group) {
        const std::vector<std::int64_t> own{0, 0, 2};
        std::vector<std::int64_t> all(6);
        all_gather_into_tensor(all, own, {.group = group});
    };
    ProcessGroup group = member(0);
    meet(group);
    GrowOptions growth{.place = store, .count = 1, .at_least = 0, .wait = 0ms, .timeout = 10s};
    for (int call = 1; call <= 2; ++call) EXPECT_EQ(group.grow(growth), group);  // the meeting has a number as well
    group.abort("rank 1 does not pass the boundary");
    growth.count = 0;
    const auto go_on = [&] {
        const ProcessGroup next = group.grow(growth);
        EXPECT_EQ(next.size(), 2);
        meet(next);
        std::vector<std::int64_t> said(2);
        all_reduce(said, {.op = ReduceOp::max, .group = next});
    };
    EXPECT_NO_THROW(go_on());
    rank_1.join();
}

TEST(ResilientAlone, says_what_is_wrong_with_its_options) {
    ProcessGroup group({.store = HashStore(), .rank = 0, .world_size = 1});
    const auto said = [&](ResilientOptions options) -> std::string {
        options.group = group;
        try {
            (void)resilient(options, [](Resilience&) {});
        } catch (const InvalidArgument& error) {
            return error.what();
        }
        return "no error";
    };
    EXPECT_EQ(said({.steps = -1}), "resilient: steps is -1: expected first, 0, or more");
    EXPECT_EQ(said({.first = -1}), "resilient: first is -1: expected zero or more");
    EXPECT_EQ(said({.save = [] { return ""; }}), "resilient: one of save and load is given: expected both or none");
    EXPECT_EQ(said({.undo = [] {}}), "resilient: one of keep and undo is given: expected both or none");
    EXPECT_EQ(said({.min_size = 0}), "resilient: min_size is 0: expected one or more");
    EXPECT_EQ(said({.min_size = 3, .max_size = 2}), "resilient: max_size is 2: expected zero, or min_size, 3, or more");
    EXPECT_EQ(said({.max_failures = -1}), "resilient: max_failures is -1: expected zero or more");
    EXPECT_EQ(said({.wait = -1ms}), "resilient: wait -1 ms: expected zero or more");
    EXPECT_EQ(said({.timeout = -1ms}), "resilient: timeout -1 ms: expected zero (the group's) or more");
    float memory = 0;
    EXPECT_EQ(said({.state = {TensorView(&memory, {1}, float32, {}, {Device::Type::cuda, 1})}}),
              "resilient: state[0] is on cuda:1: expected host memory, or keep and undo that copy it");
    EXPECT_EQ(said({}), "no error");
}

}  // namespace
}  // namespace tutti::test
