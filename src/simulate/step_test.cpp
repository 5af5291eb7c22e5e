// Steps against closed forms, single plays and other ways to play the same.
#include "simulate/step.hpp"

#include "algorithm/plan.hpp"
#include "simulate/step_picture.hpp"
#include "simulate/test_machine.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tutti::simulate::step_test {
namespace {

StepQuestion question(int ranks, int hosts) {
    StepQuestion q;
    q.costs = round_numbers();
    q.layout = layout_of_hosts(ranks, hosts);
    return q;
}

int add_call(StepQuestion& q, Collective collective, std::uint64_t count, Spread spread, std::string algorithm) {
    WholeStep::Call call{.spread = spread, .group = q.step.groups.size()};
    call.request.collective = collective;
    call.request.element_bytes = 4;
    call.request.count = count;
    if (traits_of(collective).has_blocks())
        call.request.counts.assign(static_cast<std::size_t>(spread.size),
                                   count / static_cast<std::uint64_t>(spread.size));
    if (!algorithm.empty()) call.request.algorithm = std::move(algorithm);
    q.step.groups.push_back("group " + std::to_string(q.step.groups.size()));
    q.step.calls.push_back(std::move(call));
    return static_cast<int>(q.step.calls.size()) - 1;
}
void compute(StepQuestion& q, double us, std::vector<std::uint32_t> after = {}) {
    q.step.pieces.push_back({.name = "computing", .compute_us = us, .after = std::move(after)});
}
void communicate(StepQuestion& q, int call, std::vector<std::uint32_t> after, const char* name = "bucket") {
    q.step.pieces.push_back({.name = name, .call = call, .after = std::move(after)});
}
StepQuestion whole(StepQuestion q) {
    q.conditions.delays_us.emplace_back(0, 0.0);
    return q;
}

// Two exchanges of 1000 floats between four ranks take 2 * (3 + 4 + 10 + 2 + 1) us.
constexpr double exchange_us = 40;

TEST(Step, BucketsHideBesideComputing) {
    StepQuestion q = question(4, 4);
    const int bucket = add_call(q, Collective::all_reduce, 1000, Spread::all(4), "recursive_doubling");
    compute(q, 100);
    compute(q, 50);
    communicate(q, bucket, {1});  // from 150 to 190
    compute(q, 30);               // from 150 to 180
    communicate(q, bucket, {3});  // from 190 to 230
    for (const StepAnswer& a : {answer(q), answer(whole(q))}) {
        EXPECT_NEAR(a.step_us, 150 + 2 * exchange_us, 0.01);
        EXPECT_DOUBLE_EQ(a.compute_us, 180);
        EXPECT_NEAR(a.exposed_us, 50, 0.01);
        EXPECT_NEAR(a.hidden_us, 30, 0.01);
        ASSERT_EQ(a.costs.size(), 2U);
        EXPECT_EQ(a.costs[1].count, 2);
        EXPECT_NEAR(a.costs[1].busy_us, 2 * exchange_us, 0.01);
        EXPECT_NEAR(a.costs[1].exposed_us, 50, 0.01);
        EXPECT_NEAR(a.costs[1].late_us, 0, 0.01);
        ASSERT_EQ(a.path.size(), 4U);  // forward, backward, both buckets
        EXPECT_EQ(a.path[2].piece, 2U);
        EXPECT_EQ(a.path[3].piece, 4U);
    }
}

TEST(Step, AGatherComesBeforeItsLayer) {
    // FSDP: the second gather runs while the first layer computes; the third waits for a place.
    StepQuestion q = question(4, 4);
    const int gather = add_call(q, Collective::all_reduce, 1000, Spread::all(4), "recursive_doubling");
    communicate(q, gather, {});   // to 40
    communicate(q, gather, {});   // to 80
    compute(q, 100, {0});         // 40 to 140
    communicate(q, gather, {2});  // 140 to 180
    compute(q, 10, {1});          // 140 to 150
    compute(q, 10, {3});          // 180 to 190
    const StepAnswer a = answer(q);
    EXPECT_NEAR(a.step_us, 190, 0.03);
    EXPECT_NEAR(a.exposed_us, 40 + 30, 0.03);
    EXPECT_NEAR(a.hidden_us, 50, 0.03);
}

TEST(Step, ALateRankIsNamed) {
    StepQuestion q = question(4, 4);
    const int bucket = add_call(q, Collective::all_reduce, 1000, Spread::all(4), "recursive_doubling");
    compute(q, 100);
    communicate(q, bucket, {0});
    q.conditions.delays_us.emplace_back(2, 1000.0);
    const StepAnswer a = answer(q);
    EXPECT_EQ(a.played, 4);
    EXPECT_NEAR(a.step_us, 1000 + 100 + exchange_us, 2 * exchange_us);
    EXPECT_EQ(a.costs[1].late_rank, 2);
    EXPECT_NEAR(a.costs[1].late_us, 3 * 1000.0 / 4, 1);
    EXPECT_EQ(a.path.front().rank, 2);
    EXPECT_EQ(a.path.front().from_us, 1000);
}

// The groups of a mesh are those of plays on their own: in a host, and between hosts whose cards they share.
TEST(Step, GroupsOfAMeshShareCards) {
    const Network network{.name = "test", .us = 10, .nic_gbps = 0.1};
    const auto alone = [&](int ranks, int hosts, std::uint64_t count, const char* algorithm) {
        Question q;
        const StepQuestion same = question(ranks, hosts);
        q.layout = layout_of(Spread::all(ranks), same.layout, "all");
        q.costs = same.costs;
        q.network = network;
        q.request.collective = Collective::all_reduce;
        q.request.element_bytes = 4;
        q.request.count = count;
        q.request.algorithm = algorithm;
        return answer(q).play.end_us;
    };
    const auto step_us = [&](Spread spread, const char* algorithm, std::uint64_t count, bool all) {
        StepQuestion q = question(8, 4);
        q.network = network;
        communicate(q, add_call(q, Collective::all_reduce, count, spread, algorithm), {});
        return answer(all ? whole(q) : q).step_us;
    };
    for (const bool all : {false, true}) {
        EXPECT_DOUBLE_EQ(step_us({8, 2, 1}, "two_shot", 100000, all), alone(2, 1, 100000, "two_shot"));
        EXPECT_DOUBLE_EQ(step_us({8, 8, 1}, "rails", 100000, all), alone(8, 4, 100000, "rails"));
        // Neighbouring hosts, and every other host: two groups, each on hosts of its own.
        EXPECT_DOUBLE_EQ(step_us({8, 4, 1}, "rails", 100000, all), alone(4, 2, 100000, "rails"));
        // Two groups of four, with a rank on each host: each has half of a card.
        const double one = alone(4, 4, 100000, "ring"), both = step_us({8, 4, 2}, "ring", 100000, all);
        EXPECT_GT(both, 1.6 * one);
        EXPECT_LT(both, 2.05 * one);
    }
}

// Each rank sends to its neighbour, and to the one at distance two, 4000 bytes each through a card of 0.5 GB/s. Its
// core has sent the first after 3 + 4 us, and the second three later. The first message has passed 3500 bytes when the
// second comes, at 10; both have half of the card until 12. The second has 500 then, and is through at 19. It is there
// at 29, is received in 2, and combined in 1; the first at 22.
TEST(Step, GroupsOfDifferentDimensionsShareCardsAndCores) {
    StepQuestion q = question(4, 4);
    q.network = {.name = "test", .us = 10, .nic_gbps = 0.5};
    const int near = add_call(q, Collective::all_reduce, 1000, {4, 2, 1}, "recursive_doubling"),
              far = add_call(q, Collective::all_reduce, 1000, {4, 2, 2}, "recursive_doubling");
    communicate(q, near, {}, "near");
    communicate(q, far, {}, "far");
    for (const StepAnswer& a : {answer(q), answer(whole(q))}) {
        EXPECT_NE(a.at_once, "");
        for (const double us : a.pieces[0].end_us) EXPECT_NEAR(us, 25, 1e-3);
        for (const double us : a.pieces[1].end_us) EXPECT_NEAR(us, 32, 1e-3);
        EXPECT_NEAR(a.step_us, 32, 1e-3);
    }
    // One behind the other both have the card to themselves: 3 + 8 + 10 + 2 + 1 each. What computes follows the last.
    q.step.pieces[1].after = {0};
    compute(q, 5, {1});
    const StepAnswer alone = answer(q);
    EXPECT_EQ(alone.at_once, "");
    EXPECT_NEAR(alone.step_us, 24 + 24 + 5, 1e-3);
    q.step.pieces[1].after = {};
    const StepAnswer again = answer(q);
    EXPECT_NEAR(again.step_us, 32 + 5, 1e-3);
    EXPECT_NEAR(again.exposed_us, 32, 1e-3);
}

// A group's collectives, one behind the other, are calls one behind the other.
TEST(Step, TwoCallsAreTwoCalls) {
    for (const char* name : {"ring", "rails", "hierarchical"}) {
        StepQuestion q = question(16, 4);
        const int call = add_call(q, Collective::all_reduce, 16 * 1600, Spread::all(16), name);
        for (int i = 0; i < 3; ++i) communicate(q, call, {});
        Question calls;
        calls.layout = layout_of(Spread::all(16), q.layout, "all");
        calls.costs = q.costs;
        calls.request = q.step.calls[0].request;
        calls.calls = 3;
        const double of_calls = answer(calls).play.end_us;
        EXPECT_NEAR(answer(q).step_us, of_calls, 0.02 * of_calls) << name;
    }
}

// Ranks that stand for others have the others' times, whatever the step is.
TEST(Step, ClassesAreAsGoodAsAllRanks) {
    for (const unsigned seed : {1U, 2U, 3U, std::random_device{}()}) {
        std::mt19937 random(seed);
        const auto below = [&](unsigned end) { return random() % end; };
        StepQuestion q = question(64, 16);
        q.network = below(2) == 0 ? network_named("ethernet-10") : network_named("fat-tree");
        q.network.levels = {{.hosts = 4, .gbps = 5, .us = 1}};
        const int calls[] = {add_call(q, Collective::all_reduce, 64 * 640, Spread::all(64), "rails"),
                             add_call(q, Collective::all_reduce, 1000, {64, 4, 1}, ""),
                             add_call(q, Collective::reduce_scatter, 16 * 64, {64, 16, 4}, "ring"),
                             add_call(q, Collective::all_gather, 64 * 64, Spread::all(64), "bruck")};
        for (std::uint32_t i = 0; i < 12; ++i) {
            std::vector<std::uint32_t> after;
            for (std::uint32_t before = 0; before < i; ++before) {
                if (below(4) == 0) after.push_back(before);
            }
            if (below(2) == 0)
                compute(q, static_cast<double>(below(500)), after);
            else
                communicate(q, calls[below(4)], after);
        }
        const StepAnswer by_classes = answer(q), of_all = answer(whole(q));
        EXPECT_EQ(by_classes.played, 16) << seed;
        EXPECT_EQ(of_all.played, 64) << seed;
        EXPECT_NEAR(by_classes.step_us, of_all.step_us, 1e-6 * of_all.step_us) << seed;
        EXPECT_NEAR(by_classes.exposed_us, of_all.exposed_us, 1e-6 * of_all.step_us) << seed;
    }
}

TEST(Step, JitterIsRepeatable) {
    StepQuestion q = question(8, 4);
    const int bucket = add_call(q, Collective::all_reduce, 8000, Spread::all(8), "rails");
    compute(q, 100);
    communicate(q, bucket, {0});
    const double usual = answer(whole(q)).step_us;
    q.conditions.jitter = 0.2;
    const StepAnswer a = answer(q);
    EXPECT_EQ(a.finish_us, answer(q).finish_us);
    EXPECT_GT(a.step_us, usual);
    q.conditions.seed = 9;
    EXPECT_NE(a.finish_us, answer(q).finish_us);
    q.conditions = {};
    q.conditions.slow_links.push_back({0, 1, 0.1});
    EXPECT_GT(answer(q).step_us, usual);
}

TEST(Step, RefusesGroupsThatDoNotFit) {
    const auto refusal = [](Spread spread) -> std::string {
        try {
            layout_of(spread, question(12, 3).layout, "tp");
        } catch (const InvalidArgument& error) {
            return error.what();
        }
        return {};
    };
    EXPECT_EQ(refusal({12, 3, 1}),
              "group tp: 3 ranks, each 1 behind the last: expected equally many on each host of 4 ranks");
    EXPECT_EQ(refusal({12, 5, 1}),
              "group tp: 5 ranks, each 1 behind the last: expected their product, 5, to divide 12 (--ranks)");
    EXPECT_EQ(refusal({12, 6, 2}), "");
}

TEST(Step, AHundredThousandRanksWithBuckets) {
    StepQuestion q = question(100000, 12500);
    q.network = network_named("ethernet-100");
    const int bucket = add_call(q, Collective::all_reduce, 6'400'000, Spread::all(100000), "");
    compute(q, 10000);
    for (std::uint32_t i = 0; i < 10; ++i) {
        compute(q, 2000);
        communicate(q, bucket, {2 * i + 1});
    }
    const StepAnswer a = answer(q);
    EXPECT_EQ(a.played, 8);
    EXPECT_GT(a.step_us, 30000);
    EXPECT_NE(picture_of(a, q.step, "a title").find(">a title<"), std::string::npos);
}

}  // namespace
}  // namespace tutti::simulate::step_test
