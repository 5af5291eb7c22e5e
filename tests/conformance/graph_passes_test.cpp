// What passes make of graphs, on real ranks: the same values as the plain calls.
#include "conformance/world.hpp"

#include <tutti/graph.hpp>

#include <algorithm>

namespace tutti::test {
namespace {

using graph::Executable;
using graph::Graph;
using graph::Kind;

class GraphPasses : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GraphPasses, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

using Values = std::vector<float>;
std::vector<Kind> kinds_in(const Graph& graph) {
    std::vector<Kind> kinds;
    for (const auto& node : graph.nodes) kinds.push_back(node.kind);
    return kinds;
}

using Reads = std::span<const ConstTensorView>;
using Writes = std::span<const TensorView>;

/// A step that takes views: each element of the write is f of the elements at the same place of the reads.
template <class F>
auto element_by_element(F f) {
    return [f](Reads reads, Writes writes) {
        auto* to = static_cast<float*>(writes[0].data());
        for (std::int64_t k = 0; k < writes[0].element_count(); ++k) {
            float sum = 0;
            for (const ConstTensorView& from : reads) sum += static_cast<const float*>(from.data())[k];
            to[k] = f(sum);
        }
    };
}

TEST_P(GraphPasses, put_what_algebra_made_together_with_other_calls) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Values x(16), own(8), y(16), z(16);
        const auto program = [&] {
            reduce(x, {.group = g, .group_dst = 1});
            broadcast(x, {.group = g, .group_src = 1});
            reduce_scatter_tensor(own, z, {.group = g});
            all_gather_into_tensor(z, own, {.group = g});
            all_reduce(y, {.group = g});
        };
        const graph::Optimised optimised =
            graph::optimise(graph::capture(program), {.group = g, .bucket_bytes = 1 << 20});
        EXPECT_EQ(kinds_in(optimised.graph), (std::vector{Kind::all_reduce, Kind::copy})) << optimised.graph.to_text();
        Executable step(optimised.graph);
        for (int round = 0; round < 2; ++round) {
            std::ranges::fill(x, static_cast<float>(g.rank() + 1 + round));
            std::ranges::fill(y, 10.F);
            std::ranges::fill(z, 4.F);
            step.replay();
            EXPECT_EQ(x, Values(16, static_cast<float>(3 + 2 * round)));
            EXPECT_EQ(y, Values(16, 20.F));
            EXPECT_EQ(z, Values(16, 8.F));
            EXPECT_EQ(own, Values(8, 8.F));
        }
    });
}

TEST_P(GraphPasses, scatter_what_each_rank_needs_a_block_of) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        for (const std::size_t count : {std::size_t{8}, std::size_t{20'000}}) {
            Values x(3 * count), result(count);
            const auto own = std::span(x).subspan(static_cast<std::size_t>(g.rank()) * count, count);
            const graph::Optimised optimised =
                graph::optimise(graph::capture([&] {
                                    all_reduce(x, {.group = g});
                                    graph::compute({own}, {result}, [&] { std::ranges::copy(own, result.begin()); });
                                    graph::temporary(x);
                                }),
                                {.group = g});
            EXPECT_EQ(kinds_in(optimised.graph), (std::vector{Kind::reduce_scatter, Kind::compute}))
                << optimised.to_text();
            Executable step(optimised.graph);
            for (int round = 1; round < 4; ++round) {
                for (std::size_t k = 0; k < x.size(); ++k)
                    x[k] = static_cast<float>(round * g.rank()) + static_cast<float>(k);
                step.replay();
                for (std::size_t k = 0; k < count; ++k)
                    ASSERT_EQ(result[k], static_cast<float>(3 * round) +
                                             3 * static_cast<float>(k + static_cast<std::size_t>(g.rank()) * count));
            }
        }
    });
}

TEST_P(GraphPasses, share_the_memory_of_temporaries) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        constexpr std::size_t count = 20'000;
        Values x(count), y(count), other(count);
        std::vector<Values> between(6, Values(count));
        const Graph captured = graph::capture([&] {
            for (Values& v : between) graph::temporary(v);
            graph::compute({x}, {between[0]}, element_by_element([](float v) { return v + 1; }));
            for (std::size_t i = 1; i < between.size(); ++i) {
                Work sum = async::all_reduce(between[i - 1], {.group = g});
                graph::compute({x}, {y}, element_by_element([](float v) { return v - 1; }));
                sum.wait();
                graph::compute({between[i - 1], y}, {between[i]}, element_by_element([](float v) { return v / 2; }));
            }
            graph::compute({between.back()}, {y}, element_by_element([](float v) { return v; }));
        });
        const graph::Optimised optimised = graph::optimise(captured, {.group = g});
        constexpr std::uint64_t each = count * sizeof(float);
        EXPECT_EQ(captured.peak_bytes(), 8 * each);
        EXPECT_LE(optimised.graph.peak_bytes(), 4 * each + 128) << optimised.to_text();
        Executable plain(captured), step(optimised.graph);
        const auto run = [&](Executable& one, Values& from, int round) {
            for (std::size_t k = 0; k < count; ++k)
                from[k] = static_cast<float>(g.rank() + round) + static_cast<float>(k);
            for (Values& v : between) std::ranges::fill(v, 7.F);
            one.replay();
            return y;
        };
        for (int round = 0; round < 3; ++round) {
            const Values expected = run(plain, x, round);
            EXPECT_EQ(run(step, x, round), expected);
            for (const Values& v : between) EXPECT_EQ(v, Values(count, 7.F)) << "the program's own memory is not used";
        }
        const Values expected = run(plain, x, 5);
        Executable moved(std::move(step));
        moved.bind(x, other);
        EXPECT_EQ(run(moved, other, 5), expected);
        // Communication is as it was: the other rank may go without.
        EXPECT_FALSE(optimised.graph.changed());
        if (g.rank() == 0) moved.bind(other, x);
        EXPECT_EQ(run(g.rank() == 0 ? moved : plain, x, 6), run(plain, x, 6));
    });
}

TEST_P(GraphPasses, compute_while_chunks_of_one_call_are_on_their_way) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        constexpr std::int64_t rows = 96, in = 8, out = 256;
        Values x(rows * in), w(in * out), y(rows * out), z(rows * out), other(rows * out);
        std::vector<std::int64_t> chunks, elements;
        const auto product = [&](Reads reads, Writes writes) {
            const std::int64_t n = writes[0].shape()[0];
            EXPECT_EQ(reads[0].shape(), (Extents{n, in}));
            EXPECT_EQ(reads[1].shape(), (Extents{in, out})) << "each chunk gets it whole";
            EXPECT_EQ(writes[0].shape(), (Extents{n, out}));
            chunks.push_back(n);
            const auto *a = static_cast<const float*>(reads[0].data()), *b = static_cast<const float*>(reads[1].data());
            auto* c = static_cast<float*>(writes[0].data());
            for (std::int64_t i = 0; i < n; ++i) {
                for (std::int64_t j = 0; j < out; ++j) {
                    float sum = 0;
                    for (std::int64_t k = 0; k < in; ++k) sum += a[i * in + k] * b[k * out + j];
                    c[i * out + j] = sum;
                }
            }
        };
        const auto add_one = [&](Reads reads, Writes writes) {
            elements.push_back(writes[0].element_count());
            element_by_element([](float v) { return v + 1; })(reads, writes);
        };
        const TensorView wide_z(z.data(), {rows, out}, float32);
        const auto program = [&] {
            graph::compute({TensorView(x.data(), {rows, in}, float32), TensorView(w.data(), {in, out}, float32)},
                           {TensorView(y.data(), {rows, out}, float32)}, product,
                           {.name = "product", .cost_us = 500, .splittable = true, .whole = {1}});
            all_reduce(y, {.group = g});
            graph::compute({y}, {wide_z}, add_one, {.name = "plus one", .cost_us = 50, .elementwise = true});
        };
        const graph::Optimised optimised =
            graph::optimise(graph::capture(program), {.group = g, .bucket_bytes = 1, .overlap_us = 0, .chunks = 4});
        EXPECT_EQ(std::ranges::count(kinds_in(optimised.graph), Kind::all_reduce), 4) << optimised.to_text();
        Executable step(optimised.graph);
        for (int round = 0; round < 3; ++round) {
            for (std::size_t k = 0; k < x.size(); ++k)
                x[k] = static_cast<float>((k + static_cast<std::size_t>(g.rank() + round)) % 5);
            for (std::size_t k = 0; k < w.size(); ++k) w[k] = static_cast<float>(k % 3);
            program();
            const auto expected = std::pair(y, z);
            chunks.clear();
            elements.clear();
            for (Values* v : {&y, &z}) std::ranges::fill(*v, -1.F);
            step.replay();
            EXPECT_EQ(std::pair(y, z), expected);
            EXPECT_EQ(chunks, std::vector<std::int64_t>(4, rows / 4));
            EXPECT_EQ(elements, std::vector<std::int64_t>(4, rows * out / 4));
        }
        const Values expected = z;
        step.bind(z, other);
        step.replay();
        EXPECT_EQ(other, expected) << "chunks move with their buffer";
    });
}

// Sequence parallelism: each rank has some rows of a layer's input, and of the sum of its output.
TEST_P(GraphPasses, compute_the_rows_of_all_ranks_while_chunks_of_their_blocks_are_on_their_way) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const std::int64_t n = g.size(), rows = 8, width = 100;
        Values own(rows * width), x(n * rows * width), y(x.size()), sums(own.size()), other(own.size());
        std::vector<std::int64_t> parts;
        const auto triple = [&](Reads reads, Writes writes) {
            parts.push_back(writes[0].shape()[0]);
            element_by_element([](float v) { return 3 * v; })(reads, writes);
        };
        const auto rows_of = [&](Values& v) {
            return TensorView(v.data(), {static_cast<std::int64_t>(v.size()) / width, width}, float32);
        };
        const auto program = [&] {
            all_gather_into_tensor(x, own, {.group = g});
            graph::compute({rows_of(x)}, {rows_of(y)}, triple, {.name = "triple", .cost_us = 500, .splittable = true});
            reduce_scatter_tensor(sums, y, {.group = g});
        };
        const graph::Optimised optimised =
            graph::optimise(graph::capture(program), {.group = g, .bucket_bytes = 1, .overlap_us = 0, .chunks = 4});
        for (const Kind kind : {Kind::all_gather, Kind::reduce_scatter})
            EXPECT_EQ(std::ranges::count(kinds_in(optimised.graph), kind), 4) << optimised.to_text();
        Executable step(optimised.graph);
        for (int round = 0; round < 3; ++round) {
            for (std::size_t k = 0; k < own.size(); ++k)
                own[k] = static_cast<float>((k + static_cast<std::size_t>(7 * g.rank() + round)) % 11);
            program();
            const auto expected = std::tuple(x, y, sums);
            parts.clear();
            for (Values* v : {&x, &y, &sums}) std::ranges::fill(*v, -1.F);
            step.replay();
            EXPECT_EQ(std::tuple(x, y, sums), expected);
            EXPECT_EQ(parts, std::vector<std::int64_t>(static_cast<std::size_t>(4 * n), rows / 4));
        }
        const Values expected = sums;
        step.bind(sums, other);
        step.replay();
        EXPECT_EQ(other, expected) << "chunks move with their buffer";
    });
}

TEST_P(GraphPasses, say_what_is_wrong_with_steps_that_may_run_in_chunks) {
    run_ranks(1, How::threads, [](const ProcessGroup&) {
        Values x(12), y(12), z(8);
        const auto nothing = [](Reads, Writes) {};
        const TensorView rows(x.data(), {3, 4}, float32), others(y.data(), {4, 3}, float32);
        const auto refused = [&](const ConstTensorList& reads, const TensorList& writes,
                                 graph::ComputeOptions options) {
            return message_of<InvalidArgument>(
                [&] { (void)graph::capture([&] { graph::compute(reads, writes, nothing, options); }); });
        };
        EXPECT_TRUE(
            has(refused({rows}, {others}, {.name = "s", .splittable = true}),
                "graph::compute: \"s\" may run in chunks, but writes[0] is float32[4, 3] with 4 rows: expected 3 "
                "as of the others"));
        EXPECT_TRUE(
            has(refused({x}, {z}, {.elementwise = true}), "writes[0] is float32[8] with 8 elements: expected 12"));
        EXPECT_TRUE(has(refused({}, {rows}, {.splittable = true}), "no read would be cut: expected one with rows"));
        EXPECT_TRUE(
            has(refused({rows}, {others}, {.splittable = true, .whole = {1}}), "whole lists 1: expected below 1"));
        EXPECT_TRUE(has(refused({rows}, {others}, {.whole = {0}}), "expected splittable or elementwise with them"));
        EXPECT_TRUE(has(message_of<InvalidArgument>([&] {
                            (void)graph::capture([&] { graph::compute({x}, {y}, [] {}, {.elementwise = true}); });
                        }),
                        "its function takes nothing: expected one that takes the chunks' views"));
        (void)graph::capture([&] { graph::compute({rows}, {others}, nothing, {.elementwise = true}); });
    });
}

}  // namespace
}  // namespace tutti::test
