// The formulas: their promises about each other, and their choices.
#include "algorithm/cost.hpp"

#include "algorithm/explain.hpp"
#include "algorithm/plan.hpp"
#include "algorithm/select.hpp"
#include "algorithm/walk.hpp"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

namespace tutti::algorithm {
namespace {

// Ranks of one machine, over TCP or through shared memory.
Layout layout_of(int ranks, bool shared, std::optional<CostModel> costs = CostModel{}) {
    Layout layout;
    layout.host_of.assign(static_cast<std::size_t>(ranks), 0);
    if (!shared) std::iota(layout.host_of.begin(), layout.host_of.end(), 0);
    layout.shared_memory = layout.pulls = shared;
    layout.slot_bytes = 128 << 10;
    layout.slots = 8;
    layout.tuning.costs = costs;
    return layout;
}

Request request_of(Collective collective, std::uint64_t bytes, int ranks) {
    Request request{.collective = collective, .count = bytes};
    request.counts.assign(static_cast<std::size_t>(ranks), bytes);
    return request;
}

std::string chosen(const Layout& layout, Collective collective, std::uint64_t bytes) {
    return choose(layout, request_of(collective, bytes, layout.size())).algorithm;
}

TEST(Cost, every_flat_algorithm_has_a_formula_and_more_bytes_never_take_less) {
    for (const bool shared : {false, true}) {
        for (const int ranks : {2, 3, 4, 7, 8, 64}) {
            const Layout layout = layout_of(ranks, shared);
            for (int c = 1; c <= collective_count; ++c) {
                const auto collective = static_cast<Collective>(c);
                std::map<std::string, double> last;
                for (std::uint64_t bytes = 64; bytes <= 64 << 20; bytes *= 4) {
                    std::map<std::string, double> now;
                    for (const Estimate& e : estimates(layout, request_of(collective, bytes, ranks), CostModel{})) {
                        ASSERT_TRUE(e.us.has_value()) << to_string(collective) << ' ' << e.algorithm;
                        EXPECT_GT(*e.us, 0) << to_string(collective) << ' ' << e.algorithm;
                        now[e.algorithm] = *e.us;
                    }
                    for (const auto& [name, us] : now)
                        EXPECT_GE(us, last[name]) << to_string(collective) << ' ' << name;
                    last = now;
                }
            }
        }
    }
}

double walked(const Layout& layout, const Request& request, const CostModel& costs) {
    return walked_us(schedules_of(layout, request), layout, request.element_bytes, costs);
}

TEST(Walk, takes_about_what_the_formula_says) {
    for (const int ranks : {2, 4, 8}) {
        CostModel costs;
        costs.cores = ranks;
        const Layout layout = layout_of(ranks, false, costs);
        for (const char* name : {"ring", "recursive_doubling", "recursive_halving"}) {
            for (const std::uint64_t bytes : {1 << 10, 1 << 16, 1 << 20}) {
                Request request = request_of(Collective::all_reduce, bytes, ranks);
                request.element_bytes = 1;
                request.algorithm = name;
                const auto all = estimates(layout, request, costs);
                const auto formula = std::ranges::find(all, name, &Estimate::algorithm);
                ASSERT_NE(formula, all.end());
                const double us = walked(layout, request, costs);
                EXPECT_GT(us, *formula->us / 3) << name << ' ' << bytes << " bytes, ranks: " << ranks;
                EXPECT_LT(us, *formula->us * 3) << name << ' ' << bytes << " bytes, ranks: " << ranks;
            }
        }
    }
}

TEST(Walk, reaches_the_end_of_what_has_no_formula_and_more_bytes_take_longer) {
    Layout layout = layout_of(8, true);
    layout.host_of = {0, 0, 0, 0, 1, 1, 1, 1};
    layout.machines = 2;
    layout.pulls = false;
    for (int c = 1; c <= collective_count; ++c) {
        const auto collective = static_cast<Collective>(c);
        if (traits_of(collective).exchanges()) continue;  // this request has no blocks
        double last = 0;
        for (const std::uint64_t bytes : {1 << 10, 1 << 16, 1 << 20}) {
            Request request = request_of(collective, bytes, 8);
            request.element_bytes = 1;
            const double us = walked(layout, request, CostModel{});
            EXPECT_GE(us, CostModel{}.tcp_us - CostModel{}.tcp_send_us) << to_string(collective);
            EXPECT_GE(us, last) << to_string(collective) << ' ' << bytes;
            last = us;
        }
    }
}

TEST(Cost, a_slower_machine_never_takes_less) {
    CostModel slow;
    for (const CostField& field : cost_fields()) {
        if (field.name.ends_with("_us")) slow.*field.value *= 3;
        if (field.name.ends_with("_gbps")) slow.*field.value /= 3;
    }
    for (const bool shared : {false, true}) {
        for (const std::uint64_t bytes : {64, 65536, 16 << 20}) {
            const Layout layout = layout_of(4, shared);
            const Request request = request_of(Collective::all_reduce, bytes, 4);
            const auto usual = estimates(layout, request, CostModel{}), worse = estimates(layout, request, slow);
            for (std::size_t i = 0; i < usual.size(); ++i) EXPECT_GT(*worse[i].us, *usual[i].us) << usual[i].algorithm;
        }
    }
}

TEST(Cost, few_bytes_take_few_messages_and_many_bytes_few_copies) {
    const Layout layout = layout_of(4, false);
    EXPECT_EQ(chosen(layout, Collective::all_reduce, 64), "recursive_doubling");
    EXPECT_EQ(chosen(layout, Collective::all_reduce, 256 << 10), "recursive_halving");
    EXPECT_EQ(chosen(layout, Collective::all_reduce, 64 << 20), "ring");
    EXPECT_EQ(chosen(layout, Collective::reduce_scatter, 64), "recursive_halving");
    EXPECT_EQ(chosen(layout_of(2, false), Collective::reduce_scatter, 16 << 20), "ring");
    // One exchange is best where every rank has a core and the way is long.
    CostModel far;
    far.cores = 64;
    far.tcp_us = 500;
    EXPECT_EQ(chosen(layout_of(4, false, far), Collective::all_reduce, 64), "direct");
}

TEST(Cost, ranks_that_share_cores_use_the_staging_area) {
    Layout crowded = layout_of(8, true);
    crowded.pulls = true;
    for (const Collective c : {Collective::broadcast, Collective::all_gather, Collective::gather}) {
        EXPECT_EQ(chosen(crowded, c, 64 << 10), "shared") << to_string(c);
    }
    EXPECT_EQ(chosen(crowded, Collective::all_reduce, 1 << 20), "two_shot");
}

// Measured where each of 16 ranks has a core and lines between caches are slow (an Xeon in a virtual machine): what the
// choice took against the best, at n = 4 and 16, with the numbers of that machine.
CostModel many_cores() {
    CostModel costs;
    costs.cores = 16;
    costs.cache_kb = 2048;
    costs.line_us = 0.139;
    costs.yield_us = 0.3;
    costs.wake_us = 6.9;
    costs.cache_copy_gbps = 38.5;
    costs.memory_copy_gbps = 11.35;
    costs.combine_gbps = 33.6;
    costs.share_gbps = 8.1;
    costs.stream_gbps = 5.25;
    costs.stream_read_gbps = 12.1;
    costs.pull_us = 0.66;
    costs.pull_gbps = 17.6;
    costs.pull_huge_gbps = 25.7;
    costs.pull_memory_gbps = 10.5;
    return costs;
}

TEST(Cost, chooses_what_was_quickest_on_a_machine_with_many_cores) {
    const auto best = [](Collective collective, int ranks, std::uint64_t bytes) {
        return chosen(layout_of(ranks, true, many_cores()), collective, bytes);
    };
    for (const int ranks : {4, 16}) {
        EXPECT_EQ(best(Collective::broadcast, ranks, 1 << 20), "single_copy") << "chain takes 6 times as long";
        EXPECT_EQ(best(Collective::all_gather, ranks, (16 << 20) / ranks), "direct");
        EXPECT_EQ(best(Collective::all_reduce, ranks, 1 << 20), "two_shot");
        EXPECT_EQ(best(Collective::all_reduce, ranks, 512), "slots");
    }
    EXPECT_EQ(best(Collective::reduce, 2, 64 << 10), "one_shot");
    EXPECT_EQ(best(Collective::reduce, 4, 256 << 10), "one_shot") << "binomial takes 2.2 times as long";
    EXPECT_EQ(best(Collective::reduce, 4, 1 << 20), "one_shot");
    EXPECT_EQ(best(Collective::reduce, 8, 256 << 10), "two_shot") << "one_shot takes 2.2 times as long";
    EXPECT_EQ(best(Collective::reduce_scatter, 2, 512 << 10), "ring") << "shared takes 1.9 times as long";
    EXPECT_EQ(best(Collective::all_reduce, 2, 1 << 20), "two_shot");
    EXPECT_EQ(best(Collective::all_reduce, 4, 4096), "slots");
    EXPECT_EQ(best(Collective::all_reduce, 16, 4096), "two_shot") << "slots take 1.8 times as long";
    EXPECT_EQ(best(Collective::all_reduce, 16, 32768), "two_shot") << "slots take 2.6 times as long";
}

// Measured where the kernel copies from the memory nearly as quickly as inside the cache (an EPYC with two cores).
TEST(Cost, long_buffers_are_copied_once_where_the_memory_is_quick) {
    CostModel costs;
    costs.cores = 2;
    costs.cache_kb = 1024;
    costs.line_us = 0.2;
    costs.yield_us = 0.39;
    costs.wake_us = 41.2;
    costs.cache_copy_gbps = 131.1;
    costs.memory_copy_gbps = 66;
    costs.combine_gbps = 99;
    costs.share_gbps = 20.6;
    costs.stream_gbps = 22.3;
    costs.stream_read_gbps = 34.1;
    costs.pull_us = 0.96;
    costs.pull_gbps = 14.4;
    costs.pull_huge_gbps = 38.3;
    costs.pull_memory_gbps = 60;
    const auto best = [&](Collective collective, int ranks, std::uint64_t bytes) {
        return chosen(layout_of(ranks, true, costs), collective, bytes);
    };
    EXPECT_EQ(best(Collective::scatter, 2, 2 << 20), "direct") << "shared takes 2.1 times as long";
    EXPECT_EQ(best(Collective::broadcast, 4, 4 << 20), "single_copy") << "shared takes 1.4 times as long";
    EXPECT_EQ(best(Collective::gather, 4, 1 << 20), "single_copy") << "shared takes 1.5 times as long";
    EXPECT_EQ(best(Collective::all_gather, 2, 2 << 20), "direct") << "shared takes 1.3 times as long";
}

// Measured where each of 16 ranks has a core: blocks of 64 KB between 4, 8 and 16 ranks take half as long by one copy
// of the kernel as through a ring, blocks of 32 KB as long either way.
TEST(Cost, the_kernel_copies_messages_from_where_its_one_copy_is_the_quicker_way) {
    EXPECT_EQ(pulled_from(many_cores()), least_pulled_from);
    CostModel slow_kernel = many_cores();
    slow_kernel.pull_gbps = 9;
    EXPECT_EQ(pulled_from(slow_kernel), most_pulled_from);
    CostModel between = many_cores();
    between.pull_us = 3;
    EXPECT_GT(pulled_from(between), least_pulled_from);
    EXPECT_LT(pulled_from(between), most_pulled_from);
}

TEST(Tuning, a_name_beats_a_rule_beats_the_formulas) {
    Layout layout = layout_of(4, false);
    Request request = request_of(Collective::all_reduce, 64, 4);
    const std::string by_cost = choose(layout, request).algorithm;
    EXPECT_NE(by_cost, chosen(layout_of(4, false, std::nullopt), Collective::all_reduce, 64));
    layout.tuning.rules = {{Collective::all_reduce, "one_shot"},  // cannot serve over TCP: the next
                           {Collective::all_reduce, "ring", 1024},
                           {Collective::all_reduce, "two_shot_messages", 4096, 3}};
    EXPECT_EQ(chosen(layout, Collective::all_reduce, 1024), "ring");
    EXPECT_EQ(chosen(layout, Collective::all_reduce, 2048), by_cost);  // more bytes, or more ranks, than a rule is for
    request.algorithm = "direct";
    EXPECT_EQ(choose(layout, request).algorithm, "direct");
}

// The formulas are about ordinary memory: one_shot saves a step there, but with symmetric buffers copies everything.
TEST(Tuning, formulas_do_not_choose_where_buffers_may_lie_in_symmetric_memory) {
    const Layout layout = layout_of(2, true), limits = layout_of(2, true, std::nullopt);
    bool differs = false;
    for (int c = 1; c <= collective_count; ++c) {
        for (std::uint64_t bytes = 64; bytes <= 64 << 20; bytes *= 4) {
            Request request = request_of(static_cast<Collective>(c), bytes, 2);
            differs |= choose(layout, request).algorithm != choose(limits, request).algorithm;
            request.symmetric = true;
            EXPECT_EQ(choose(layout, request).algorithm, choose(limits, request).algorithm) << c << ' ' << bytes;
        }
    }
    EXPECT_TRUE(differs) << "the formulas never choose anything else: nothing was shown";
}

TEST(Tuning, what_is_printed_for_a_layout_gives_the_same_choices_when_it_is_read_back) {
    for (const bool shared : {false, true}) {
        const Layout tuned = layout_of(4, shared);
        Layout fixed = layout_of(4, shared, std::nullopt);
        fixed.tuning.rules = parse_table(describe_choices(tuned), "a test");
        for (int c = 1; c <= collective_count; ++c) {
            for (std::uint64_t bytes = 64; bytes <= 64 << 20; bytes *= 2) {
                const auto collective = static_cast<Collective>(c);
                EXPECT_EQ(chosen(fixed, collective, bytes), chosen(tuned, collective, bytes)) << bytes;
            }
        }
    }
}

TEST(Cost, no_algorithm_takes_less_than_no_time_on_one_rank) {
    const Layout layout = layout_of(1, true);
    for (int c = 1; c <= collective_count; ++c) {
        const auto collective = static_cast<Collective>(c);
        for (const Estimate& e : estimates(layout, request_of(collective, 64 << 20, 1), CostModel{}))
            EXPECT_GE(e.us.value_or(0), 0) << to_string(collective) << ' ' << e.algorithm;
    }
}

TEST(Tuning, explain_shows_the_numbers_and_every_algorithm_that_applies) {
    const std::string text = explain(layout_of(4, false), request_of(Collective::all_reduce, 1 << 20, 4), "a test");
    for (const char* words : {"numbers (a test)", "tcp_us 10", "predicted:", "ring ", "direct ", " us"})
        EXPECT_NE(text.find(words), std::string::npos) << words << " in " << text;
}

}  // namespace
}  // namespace tutti::algorithm
