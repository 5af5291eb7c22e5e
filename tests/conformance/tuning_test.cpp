// What chooses algorithms is the same on all ranks, and is left out where results must not depend on measurements.
#include "conformance/world.hpp"

#include "algorithm/plan.hpp"
#include "group/group.hpp"
#include "tune/cache.hpp"

#include <cstdlib>
#include <numeric>
#include <set>

namespace tutti::test {
namespace {

class Tuning : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Tuning, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

TEST_P(Tuning, all_ranks_decide_from_the_same_numbers) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const auto& tuning = g.impl()->planner().layout().tuning;
        ASSERT_TRUE(tuning.costs.has_value());
        const auto all = all_gather_object(to_string(tune::object_of(*tuning.costs)), {.group = g});
        EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 1U);
        EXPECT_EQ(g.impl()->planner().layout().machines, 1);
    });
}

TEST_P(Tuning, a_group_that_promises_the_same_bits_in_every_run_does_not_choose_by_measurement) {
    for (const Determinism level : {Determinism::run_to_run, Determinism::layout_invariant}) {
        run_ranks(2, GetParam(),
                  [](const ProcessGroup& g) { EXPECT_FALSE(g.impl()->planner().layout().tuning.costs.has_value()); },
                  {.determinism = level});
    }
}

TEST_P(Tuning, all_ranks_predict_the_same_and_more_for_more_bytes) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        for (const char* name : {"all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter",
                                 "reduce_scatter", "all_to_all", "scan", "exscan", "gather_v", "scatter_v"}) {
            const std::vector<double> mine{g.predicted_us(name, 8), g.predicted_us(name, 64 << 20)};
            EXPECT_GT(mine[0], 0) << name;
            EXPECT_GT(mine[1], 10 * mine[0]) << name;
            std::vector<double> all(6);
            all_gather_into_tensor(all, mine, {.group = g});
            for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], mine[i % 2]) << name;
        }
        const std::string text = message_of<InvalidArgument>([&] { (void)g.predicted_us("all_reduced", 8); });
        EXPECT_TRUE(has(text, "\"all_reduced\": expected one of all_reduce, broadcast")) << text;
    });
}

TEST_P(Tuning, every_algorithm_that_is_named_for_a_group_serves_it) {
    for (const int ranks : {2, 4}) {
        run_ranks(ranks, GetParam(), [](const ProcessGroup& g) {
            const int n = g.size();
            for (const std::uint64_t count : {5000, 30'000, 70'000}) {  // messages of some KB to 280
                const algorithm::Request request{
                    .collective = Collective::all_reduce, .element_bytes = 4, .count = count};
                for (const std::string& name : algorithm::applicable(g.impl()->planner().layout(), request)) {
                    g.impl()->planner().serve_with(Collective::all_reduce, name);
                    std::vector<float> values(count, static_cast<float>(g.rank() + 1));
                    all_reduce(values, {.group = g});
                    EXPECT_EQ(values, std::vector<float>(count, static_cast<float>(n * (n + 1) / 2))) << name;
                }
            }
            g.impl()->planner().serve_with(Collective::all_reduce, std::nullopt);
            barrier({.group = g});
        });
    }
}

TEST_P(Tuning, every_algorithm_of_a_prefix_gives_it) {
    for (const int ranks : {1, 2, 3, 4}) {
        run_ranks(ranks, GetParam(), [](const ProcessGroup& g) {
            const int me = g.rank();
            algorithm::Layout layout = g.impl()->planner().layout();
            for (const Collective prefix : {Collective::scan, Collective::exscan}) {
                for (const std::uint64_t count : {1, 5000, 70'000, 300'000}) {
                    const algorithm::Request request{.collective = prefix, .element_bytes = 4, .count = count};
                    for (const std::string& name : algorithm::applicable(layout, request)) {
                        g.impl()->planner().serve_with(prefix, name);
                        std::vector<std::int32_t> values(count), expected(count);
                        for (std::size_t i = 0; i < count; ++i) {
                            values[i] = static_cast<std::int32_t>(i) + me;
                            expected[i] = values[i];
                            const int end = traits_of(prefix).combined_end(me, g.size());
                            if (end > 0) expected[i] = end * static_cast<std::int32_t>(i) + end * (end - 1) / 2;
                        }
                        prefix == Collective::scan ? scan(values, {.group = g}) : exscan(values, {.group = g});
                        ASSERT_EQ(values, expected) << to_string(prefix) << " by " << name;
                    }
                    g.impl()->planner().serve_with(prefix, std::nullopt);
                }
            }
            barrier({.group = g});
        });
    }
}

TEST_P(Tuning, slots_serve_short_calls_unless_they_are_excluded) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const algorithm::Layout& layout = g.impl()->planner().layout();
        const auto me = static_cast<std::size_t>(g.rank());
        for (const auto& name : {std::optional<std::string>(), std::optional<std::string>("^slots")}) {
            for (const Collective c : {Collective::all_reduce, Collective::all_to_all}) {
                g.impl()->planner().serve_with(c, name);
                EXPECT_EQ(g.impl()->planner().is_short(c, 8), layout.shared_memory && layout.one_host() && !name);
            }
            for (int turn = 0; turn < 3; ++turn) {
                std::vector<int> sum{g.rank(), turn};
                all_reduce(sum, {.group = g});
                EXPECT_EQ(sum, (std::vector<int>{3, 3 * turn}));
                std::vector<int> sent(6, g.rank()), received(3 * (me + 1), -1), expected;
                for (int rank = 0; rank < 3; ++rank) expected.insert(expected.end(), me + 1, rank);
                all_to_all_single(received, sent,
                                  {.output_split_sizes = std::vector<std::int64_t>(3, g.rank() + 1),
                                   .input_split_sizes = {1, 2, 3},
                                   .group = g});
                EXPECT_EQ(received, expected);
            }
        }
    });
}

}  // namespace
}  // namespace tutti::test
