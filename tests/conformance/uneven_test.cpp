// all_gather_v and reduce_scatter_v: one tensor, with a different number of rows per rank.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <tutti/coalescing.hpp>

#include <numeric>

namespace tutti::test {
namespace {

using Counts = std::vector<std::int64_t>;

class Uneven : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Uneven, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

std::int64_t sum(const Counts& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

/// What rank `r` has of something with a row for each of all ranks' rows.
std::vector<std::int64_t> rows_of(const Counts& sizes, int rank, std::int64_t columns, std::int64_t first = 0) {
    const auto at = static_cast<std::size_t>(rank);
    const std::int64_t before = std::accumulate(sizes.begin(), sizes.begin() + rank, std::int64_t{0}) * columns;
    std::vector<std::int64_t> rows(static_cast<std::size_t>(sizes[at] * columns));
    std::iota(rows.begin(), rows.end(), first + before);
    return rows;
}
std::vector<std::int64_t> all_rows(const Counts& sizes, std::int64_t columns, std::int64_t first = 0) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(sum(sizes) * columns));
    std::iota(rows.begin(), rows.end(), first);
    return rows;
}

/// Sizes of three ranks: short calls and long ones, a rank that has nothing, and one that has all.
const std::vector<Counts>& cases() {
    static const std::vector<Counts> all{{1, 2, 3}, {0, 4, 1}, {0, 0, 5}, {2, 2, 2}, {0, 0, 0}, {9000, 1, 700}};
    return all;
}

TEST_P(Uneven, all_gather_puts_the_rows_of_all_ranks_one_after_the_other) {
    covers("A-20", "S20-010");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        for (const Counts& sizes : cases()) {
            for (const std::int64_t columns : {1, 3}) {
                const auto input = rows_of(sizes, g.rank(), columns), expected = all_rows(sizes, columns);
                std::vector<std::int64_t> output(expected.size(), -1);
                const TensorView to(output.data(), {sum(sizes), columns}, int64);
                const ConstTensorView from(input.data(), {sizes[static_cast<std::size_t>(g.rank())], columns}, int64);
                all_gather_v(to, from, {.output_split_sizes = sizes, .group = g});
                ASSERT_EQ(output, expected);
                std::ranges::fill(output, -1);
                async::all_gather_v(to, from, {.output_split_sizes = sizes, .group = g}).wait();
                ASSERT_EQ(output, expected);
                std::ranges::fill(output, -1);
                g.all_gather_v(to, from);  // every rank tells its rows
                ASSERT_EQ(output, expected);
                Plan plan = plan::all_gather_v(to, from, {.output_split_sizes = sizes, .group = g});
                for (int run = 0; run < 3; ++run) {
                    std::ranges::fill(output, -1);
                    plan.run();
                    ASSERT_EQ(output, expected);
                }
            }
        }
    });
}

TEST_P(Uneven, reduce_scatter_gives_each_rank_its_rows_of_the_combination) {
    covers("S20-011");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        for (const Counts& sizes : cases()) {
            for (const std::int64_t columns : {1, 3}) {
                const auto input = all_rows(sizes, columns, 10 * g.rank());
                auto expected = rows_of(sizes, g.rank(), columns);
                for (std::int64_t& value : expected) value = 3 * value + 30;
                std::vector<std::int64_t> output(expected.size(), -1);
                const TensorView to(output.data(), {sizes[static_cast<std::size_t>(g.rank())], columns}, int64);
                const ConstTensorView from(input.data(), {sum(sizes), columns}, int64);
                reduce_scatter_v(to, from, {.input_split_sizes = sizes, .group = g});
                ASSERT_EQ(output, expected);
                std::ranges::fill(output, -1);
                async::reduce_scatter_v(to, from, {.input_split_sizes = sizes, .group = g}).wait();
                ASSERT_EQ(output, expected);
                std::ranges::fill(output, -1);
                g.reduce_scatter_v(to, from);  // every rank tells its rows
                ASSERT_EQ(output, expected);
                Plan plan = plan::reduce_scatter_v(to, from, {.input_split_sizes = sizes, .group = g});
                for (int run = 0; run < 3; ++run) {
                    std::ranges::fill(output, -1);
                    plan.run();
                    ASSERT_EQ(output, expected);
                }
                std::vector<std::int64_t> most(expected.size(), -1);
                const TensorView largest(most.data(), to.shape(), int64);
                reduce_scatter_v(largest, from, {.input_split_sizes = sizes, .op = ReduceOp::max, .group = g});
                for (std::size_t i = 0; i < most.size(); ++i) ASSERT_EQ(3 * (most[i] - 20) + 30, expected[i]);
            }
        }
    });
}

// They lie in falling order of ranks, with a gap of one row before each; each rank may have other places.
TEST_P(Uneven, all_gather_puts_the_rows_where_the_offsets_say) {
    covers("S24-003");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        for (const Counts& sizes : cases()) {
            constexpr std::int64_t columns = 2;
            const auto input = rows_of(sizes, g.rank(), columns);
            Counts offsets(3);
            std::int64_t rows = g.rank();
            for (std::size_t r = 3; r-- > 0; rows += sizes[r]) offsets[r] = ++rows;
            for (const std::int64_t stride : {1, 2}) {  // of the columns
                const auto at = [&](std::int64_t row, std::int64_t column) {
                    return static_cast<std::size_t>((row * columns + column) * stride);
                };
                std::vector<std::int64_t> output(static_cast<std::size_t>(rows * columns * stride), -1);
                auto expected = output;
                for (std::size_t r = 0; r < 3; ++r) {
                    const auto theirs = rows_of(sizes, static_cast<int>(r), columns);
                    for (std::size_t k = 0; k < theirs.size(); ++k) {
                        const auto place = static_cast<std::int64_t>(k);
                        expected[at(offsets[r] + place / columns, place % columns)] = theirs[k];
                    }
                }
                const TensorView to(output.data(), {rows, columns}, int64, {columns * stride, stride});
                const ConstTensorView from(input.data(), {sizes[static_cast<std::size_t>(g.rank())], columns}, int64);
                const AllGatherVOptions options{.output_split_sizes = sizes, .output_offsets = offsets, .group = g};
                all_gather_v(to, from, options);
                ASSERT_EQ(output, expected);
                std::ranges::fill(output, -1);
                async::all_gather_v(to, from, options).wait();
                ASSERT_EQ(output, expected);
                Plan plan = plan::all_gather_v(to, from, options);
                for (int run = 0; run < 2; ++run) {
                    std::ranges::fill(output, -1);
                    plan.run();
                    ASSERT_EQ(output, expected);
                }
                std::ranges::fill(output, -1);
                g.all_gather_v(to, from, {.output_offsets = offsets});  // every rank tells its rows
                ASSERT_EQ(output, expected);
            }
        }
    });
}

TEST_P(Uneven, former_names_are_the_same_functions) {
    covers("S20-010", "S20-011", "S24-004");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        using Values = std::vector<std::int64_t>;
        const Values own(static_cast<std::size_t>(g.rank()) + 1, g.rank());
        const AllGatherUnevenOptions gathering{.output_split_sizes = {1, 2}, .group = g};
        const ReduceScatterUnevenOptions scattering{.input_split_sizes = {1, 2}, .group = g};
        Values all(3), part(own.size());
        all_gather_into_tensor_uneven(all, own, gathering);
        EXPECT_EQ(all, (Values{0, 1, 1}));
        async::reduce_scatter_tensor_uneven(part, all, scattering).wait();
        EXPECT_EQ(part, Values(part.size(), 2 * g.rank()));
        plan::reduce_scatter_tensor_uneven(part, all, scattering).run();
        EXPECT_EQ(part, Values(part.size(), 2 * g.rank()));
        std::ranges::fill(all, -1);
        g.all_gather_into_tensor_uneven(all, own);
        EXPECT_EQ(all, (Values{0, 1, 1}));
    });
}

TEST_P(Uneven, worked_examples_of_two_ranks) {
    covers("E-902", "E-903");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        using Values = std::vector<std::int64_t>;
        const Values own = g.rank() == 0 ? Values{1, 2} : Values{3, 4, 5};
        Values all(5);
        all_gather_v(all, own, {.output_split_sizes = {2, 3}, .group = g});
        EXPECT_EQ(all, (Values{1, 2, 3, 4, 5}));
        const Values whole = g.rank() == 0 ? Values{1, 2, 3, 4, 5} : Values{10, 20, 30, 40, 50};
        Values part(own.size());
        reduce_scatter_v(part, whole, {.input_split_sizes = {2, 3}, .group = g});
        EXPECT_EQ(part, (g.rank() == 0 ? Values{11, 22} : Values{33, 44, 55}));
    });
}

TEST_P(Uneven, calls_without_sizes_that_cannot_ask_expect_even_ones) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> own{g.rank(), g.rank()}, all(4);
        async::all_gather_v(all, own, {.group = g}).wait();
        EXPECT_EQ(all, (std::vector<int>{0, 0, 1, 1}));
        std::vector<int> three(3);
        const std::string text =
            message_of<InvalidArgument>([&] { (void)async::all_gather_v(three, own, {.group = g}); });
        EXPECT_TRUE(has(text, "multiple of 2 (or split sizes)")) << text;
        std::ranges::fill(all, -1);
        {
            const Coalescing scope({.group = g});
            all_gather_v(all, own, {.group = g});
            EXPECT_EQ(all, (std::vector<int>(4, -1)));  // only noted down, like the others
        }
        EXPECT_EQ(all, (std::vector<int>{0, 0, 1, 1}));
    });
}

TEST_P(Uneven, calls_that_cannot_be_are_refused_before_anything_moves) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> own(2), all(4);
        const auto refused = [&](const Counts& sizes, std::vector<std::string> words) {
            const std::string gather =
                message_of<InvalidArgument>([&] { all_gather_v(all, own, {.output_split_sizes = sizes, .group = g}); });
            for (const std::string& word : words) EXPECT_TRUE(has(gather, word)) << gather;
            EXPECT_TRUE(has(gather, "all_gather_v: ")) << gather;
            const std::string scatter = message_of<InvalidArgument>(
                [&] { reduce_scatter_v(own, all, {.input_split_sizes = sizes, .group = g}); });
            for (const std::string& word : words) EXPECT_TRUE(has(scatter, word)) << scatter;
            EXPECT_TRUE(has(scatter, "reduce_scatter_v: ")) << scatter;
        };
        refused({2, 1, 1}, {"put_split_sizes has 3 entries", "expected 2"});
        refused({5, -1}, {"put_split_sizes has -1"});
        refused({2, 1}, {"put_split_sizes add up to 3", "expected 4"});
        refused(g.rank() == 0 ? Counts{1, 3} : Counts{3, 1}, {"put has 2 elements", "expected 1"});
        const auto misplaced = [&](const Counts& sizes, const Counts& offsets, const std::string& words) {
            const std::string text = message_of<InvalidArgument>(
                [&] { all_gather_v(all, own, {.output_split_sizes = sizes, .output_offsets = offsets, .group = g}); });
            EXPECT_TRUE(has(text, words)) << text;
        };
        misplaced({2, 2}, {0, 3}, "the block from rank 1 (2 rows at output_offsets 3) leaves output: expected blocks");
        misplaced({2, 2}, {1, 0}, "the blocks from ranks 1 and 0 overlap in output");
        misplaced({2, 2}, {1}, "output_offsets has 1 entries");
        EXPECT_TRUE(has(message_of<InvalidArgument>([&] {
                            (void)async::all_gather_v(all, own, {.output_offsets = {0, 2}, .group = g});
                        }),
                        "output_offsets is given, and no output_split_sizes: expected both"));
        std::vector<float> other(2);
        EXPECT_TRUE(has(message_of<InvalidArgument>([&] {
                            all_gather_v(all, other, {.output_split_sizes = {2, 2}, .group = g});
                        }),
                        "int32"));
        all_gather_v(all, own, {.output_split_sizes = {2, 2}, .group = g});  // nothing has moved
    });
}

}  // namespace
}  // namespace tutti::test
