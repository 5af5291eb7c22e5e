#include "graph/test_graphs.hpp"

#include <gtest/gtest.h>

namespace tutti::graph {
namespace {

using test::graphs_of;
using test::kinds_of;
using test::Program;

constexpr std::uint64_t rows = 64, row_bytes = 256, bytes = rows * row_bytes;
constexpr double collective_us = 10 + 0.01 * bytes;  // as Program's group predicts

OptimiseOptions chunks(int count) {
    OptimiseOptions options;
    options.overlap_us = 15;
    options.bucket_bytes = 1;
    if (count > 0) options.chunks = count;
    return options;
}

/// Rank 1's graph after all passes, which are proved.
Optimised split_after(const std::function<void(Program&)>& program, const OptimiseOptions& options) {
    const auto before = graphs_of(2, program);
    const auto results = optimise(before, options);
    EXPECT_TRUE(prove(before, test::graphs_in(results)));
    EXPECT_EQ(results[0].graph.collectives_hash(0), results[1].graph.collectives_hash(0));
    return results[1];
}
std::size_t calls_in(const Optimised& o) {
    return static_cast<std::size_t>(
        std::ranges::count_if(o.graph.nodes, [](const Node& n) { return n.kind == Kind::all_reduce; }));
}
/// "c" for a step, "s" for a start, "b" for a call that blocks, "w" for a wait.
std::string order_of(const Optimised& o) {
    std::string text;
    for (const Node& n : o.graph.nodes)
        text += n.kind == Kind::wait ? 'w' : n.kind == Kind::compute ? 'c' : n.asynchronous ? 's' : 'b';
    return text;
}

/// A product by rows of x and w, whose sum over the ranks follows.
void layer(Program& p, const Range& x, const Range& w, const Range& y, double cost_us = collective_us) {
    p.rows(p.compute({x, w}, {y}, cost_us), rows, {1});
    p.all_reduce(y);
}

TEST(Split, has_a_step_compute_one_chunk_while_another_is_on_its_way) {
    const Optimised split = split_after(
        [](Program& p) {
            const Range x = p.buffer(bytes), w = p.buffer(64), y = p.buffer(bytes);
            layer(p, x, w, y);
        },
        chunks(4));
    EXPECT_EQ(order_of(split), "cscscscbwww") << split.graph.to_text();
    EXPECT_TRUE(split.graph.changed());
    EXPECT_TRUE(test::says(split.to_text(),
                           "all_reduce of float32 × 4096, sum (line 1) and \"step 0\" run in 4 "
                           "chunks: while one is on its way, the next is computed"));
    EXPECT_EQ(split.graph.nodes[2].name, "step 0 [2 of 4]");
    EXPECT_EQ(split.graph.nodes[2].rows, rows / 4);
    EXPECT_EQ(Graph::from_text(split.graph.to_text()), split.graph);
}

// The longer of the two takes 174 µs; one after the other they take 348.
TEST(Split, of_a_dependent_layer_by_four_is_predicted_within_a_quarter_of_the_longer_of_both_and_the_latencies) {
    const auto program = [](Program& p) {
        const Range x = p.buffer(bytes), w = p.buffer(64), y = p.buffer(bytes);
        layer(p, x, w, y);
    };
    constexpr double latencies_us = 3 * 10;
    EXPECT_LE(split_after(program, chunks(4)).graph.predicted_us(), 1.25 * collective_us + latencies_us);
}

TEST(Split, goes_on_through_the_step_behind) {
    const Optimised split = split_after(
        [](Program& p) {
            const Range x = p.buffer(bytes), w = p.buffer(64), y = p.buffer(bytes), z = p.buffer(bytes);
            layer(p, x, w, y);
            layer(p, y, w, z);
            p.rows(p.compute({z}, {x}, 20), bytes / 4);  // by elements
        },
        chunks(2));
    EXPECT_EQ(calls_in(split), 4U) << split.to_text();
    EXPECT_EQ(std::ranges::count(kinds_of(split.graph), Kind::compute), 6) << split.graph.to_text();
}

TEST(Split, has_an_element_wise_step_run_as_chunks_come) {
    const Optimised split = split_after(
        [](Program& p) {
            const Range x = p.buffer(bytes), y = p.buffer(bytes / 2);
            p.all_reduce(x);
            p.rows(p.compute({x}, {y}, 100), bytes / 4);
        },
        chunks(4));
    EXPECT_EQ(order_of(split), "bssscwcwcwc") << split.graph.to_text();
}

TEST(Split, takes_as_many_chunks_as_the_latency_is_worth) {
    const auto with_cost = [](double cost_us, std::uint64_t size, OptimiseOptions options) {
        return calls_in(split_after(
            [&](Program& p) {
                const Range x = p.buffer(size), y = p.buffer(size);
                p.rows(p.compute({x}, {y}, cost_us), rows);
                p.all_reduce(y);
            },
            options));
    };
    EXPECT_EQ(with_cost(0, bytes, chunks(0)), 1U) << "there is nothing to overlap with";
    EXPECT_EQ(with_cost(21, bytes, chunks(0)), 2U) << "√2.1, rounded up";
    EXPECT_EQ(with_cost(163, bytes, chunks(0)), 4U) << "√16.3";
    EXPECT_EQ(with_cost(1e9, bytes * 100, chunks(0)), 16U);
    OptimiseOptions long_calls = chunks(0);
    long_calls.overlap_us = 90;
    EXPECT_EQ(with_cost(163, bytes, long_calls), 2U) << "of 92 µs each";
    long_calls.overlap_us = 200;
    EXPECT_EQ(with_cost(163, bytes, long_calls), 1U);
    EXPECT_EQ(with_cost(163, bytes, {.split = false, .overlap_us = 15}), 1U);
    EXPECT_EQ(with_cost(163, bytes, {.overlap = false, .overlap_us = 15}), 1U) << "nothing would run beside";
}

TEST(Split, cuts_between_rows_and_elements_alone) {
    const Optimised split = split_after(
        [](Program& p) {
            const Range x = p.buffer(7 * 12), y = p.buffer(7 * 12);
            p.rows(p.compute({x}, {y}, 100), 7);
            p.all_reduce(y);
        },
        [] {
            OptimiseOptions options = chunks(3);
            options.overlap_us = 0;
            return options;
        }());
    std::vector<std::uint64_t> of_each;
    for (const Node& n : split.graph.nodes) {
        if (n.kind == Kind::compute) of_each.push_back(n.rows);
    }
    EXPECT_EQ(of_each, (std::vector<std::uint64_t>{2, 2, 3}));
}

TEST(Split, leaves_what_may_not_be_cut) {
    const auto calls = [](const std::function<void(Program&)>& program, Determinism determinism = Determinism::fast) {
        const auto before = graphs_of(2, program, determinism);
        const auto results = optimise(before, chunks(4));
        return calls_in(results[0]);
    };
    EXPECT_EQ(calls([](Program& p) {  // a step that nobody may cut
                  const Range x = p.buffer(bytes), y = p.buffer(bytes);
                  p.compute({x}, {y}, 100);
                  p.all_reduce(y);
              }),
              1U);
    EXPECT_EQ(calls([](Program& p) {  // the collective takes a part of what the step writes
                  const Range x = p.buffer(bytes), y = p.buffer(bytes);
                  p.rows(p.compute({x}, {y}, 100), rows);
                  p.all_reduce(Program::part(y, 0, bytes / 2));
              }),
              1U);
    EXPECT_EQ(calls([](Program& p) {  // every chunk needs all of it
                  const Range x = p.buffer(bytes), y = p.buffer(bytes), z = p.buffer(bytes);
                  p.all_reduce(x);
                  p.rows(p.compute({y, x}, {z}, 100), rows, {1});
              }),
              1U);
    EXPECT_EQ(calls([](Program& p) {  // chunks would write over what later ones read
                  const Range x = p.buffer(bytes + row_bytes);
                  const Range to = Program::part(x, 0, bytes);
                  p.rows(p.compute({Program::part(x, row_bytes, bytes)}, {to}, 100), rows);
                  p.all_reduce(to);
              }),
              1U);
    const auto sum = [](Program& p) {
        const Range x = p.buffer(bytes), y = p.buffer(bytes);
        p.rows(p.compute({x}, {y}, 100), rows);
        p.all_reduce(y);
    };
    EXPECT_EQ(calls(sum, Determinism::run_to_run), 1U) << "sums of chunks round otherwise";
    EXPECT_EQ(calls(sum), 4U);
}

TEST(Split, is_into_as_many_chunks_as_all_ranks_want) {
    const auto before = graphs_of(3, [](Program& p) {
        const Range x = p.buffer(bytes), y = p.buffer(bytes);
        for (int i = 0; i < 2; ++i) {
            p.rows(p.compute({x}, {y}, p.rank() == 0 ? 163 : p.rank() == 1 ? 40 : 1000), rows);
            p.all_reduce(y);
        }
        p.rows(p.compute({x}, {y}, p.rank() == 2 ? 0 : 500), rows);
        p.all_reduce(y);
    });
    const auto results = optimise(before, chunks(0));
    for (const Optimised& o : results) EXPECT_EQ(calls_in(o), 2U + 2U + 1U) << o.to_text();
    EXPECT_TRUE(prove(before, test::graphs_in(results)));
}

/// Of each compute step, the first byte and the rows of its first read and of its first write.
using Cuts = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
Cuts cuts_of(const Graph& graph, bool of_reads) {
    Cuts cuts;
    for (const Node& n : graph.nodes) {
        if (n.kind != Kind::compute) continue;
        const Range& r = (of_reads ? n.pieces[0].reads : n.pieces[0].writes)[0];
        cuts.emplace_back(r.offset / row_bytes, n.rows);
    }
    return cuts;
}
std::vector<Kind> collectives_of(const Graph& graph) {
    std::vector<Kind> kinds = kinds_of(graph);
    std::erase_if(kinds, [](Kind kind) { return !is_collective(kind); });
    return kinds;
}

TEST(Split, computes_the_same_part_of_each_ranks_block_before_a_chunk_of_a_reduce_scatter) {
    const Optimised split = split_after(
        [](Program& p) {
            const Range x = p.buffer(bytes), w = p.buffer(64), y = p.buffer(bytes), own = p.buffer(bytes / 2);
            p.rows(p.compute({x, w}, {y}, collective_us), rows, {1});
            p.reduce_scatter(y, own);
        },
        chunks(4));
    EXPECT_EQ(order_of(split), "ccsccsccsccbwww") << split.graph.to_text();
    EXPECT_EQ(cuts_of(split.graph, false),
              (Cuts{{0, 8}, {32, 8}, {8, 8}, {40, 8}, {16, 8}, {48, 8}, {24, 8}, {56, 8}}));
    EXPECT_EQ(split.graph.nodes[1].name, "step 0 [2 of 8]");
    EXPECT_TRUE(
        test::says(split.to_text(), "reduce_scatter of float32 × 4096, sum (line 1) and \"step 0\" run in 4 chunks"));
    EXPECT_EQ(Graph::from_text(split.graph.to_text()), split.graph);
}

TEST(Split, computes_the_same_part_of_each_ranks_block_behind_a_chunk_of_an_all_gather) {
    const Optimised split = split_after(
        [](Program& p) {
            const Range own = p.buffer(bytes / 2), x = p.buffer(bytes), w = p.buffer(64), y = p.buffer(bytes);
            p.all_gather(own, x);
            p.rows(p.compute({x, w}, {y}, collective_us), rows, {1});
        },
        chunks(2));
    EXPECT_EQ(order_of(split), "bsccwcc") << split.graph.to_text();
    EXPECT_EQ(cuts_of(split.graph, true), (Cuts{{0, 16}, {32, 16}, {16, 16}, {48, 16}}));
}

// Sequence parallelism: the rows of a layer's input are gathered, those of its output are scattered.
TEST(Split, cuts_a_step_between_an_all_gather_and_a_reduce_scatter_once) {
    const Optimised split = split_after(
        [](Program& p) {
            const Range own = p.buffer(bytes / 2), x = p.buffer(bytes), w = p.buffer(64), y = p.buffer(bytes),
                        sums = p.buffer(bytes / 2), z = p.buffer(bytes / 2);
            p.rows(p.compute({z}, {own}, 30), bytes / 8);
            p.all_gather(own, x);
            p.rows(p.compute({x, w}, {y}, collective_us), rows, {1});
            p.reduce_scatter(y, sums);
            p.rows(p.compute({sums}, {z}, 30), bytes / 8);  // by elements
        },
        chunks(2));
    EXPECT_EQ(collectives_of(split.graph),
              (std::vector{Kind::all_gather, Kind::all_gather, Kind::reduce_scatter, Kind::reduce_scatter}));
    EXPECT_EQ(std::ranges::count(kinds_of(split.graph), Kind::compute), 2 + 4 + 2) << split.graph.to_text();
}

TEST(Split, works_in_place_on_a_ranks_own_block) {
    for (const bool elsewhere : {false, true}) {
        const auto before = graphs_of(2, [&](Program& p) {
            const Range x = p.buffer(bytes), y = p.buffer(2 * bytes), whole = Program::part(y, 0, bytes);
            const auto me = static_cast<std::size_t>(p.rank());
            const Range own = elsewhere ? Program::part(whole, bytes / 4, bytes / 2) : p.blocks(whole)[me];
            p.rows(p.compute({x}, {whole}, 100), rows);
            p.reduce_scatter(whole, own);
        });
        const auto results = optimise(before, chunks(4));
        EXPECT_TRUE(prove(before, test::graphs_in(results)));
        EXPECT_EQ(collectives_of(results[1].graph).size(), elsewhere ? 1U : 4U)
            << "where the result lies in other ranks' blocks, a chunk would write over what the next one reads";
    }
}

TEST(Split, leaves_blocks_that_may_not_be_cut) {
    const auto calls = [](const std::function<void(Program&)>& program, Determinism determinism = Determinism::fast) {
        const auto before = graphs_of(3, program, determinism);
        const auto results = optimise(before, chunks(2));
        EXPECT_TRUE(prove(before, test::graphs_in(results)));
        return collectives_of(results[0].graph).size();
    };
    constexpr std::uint64_t wide = 3 * bytes;
    const auto scatter = [](Program& p) {
        const Range x = p.buffer(wide), y = p.buffer(wide), own = p.buffer(bytes);
        p.rows(p.compute({x}, {y}, 100), 3 * rows);
        p.reduce_scatter(y, own);
    };
    EXPECT_EQ(calls(scatter), 2U);
    EXPECT_EQ(calls(scatter, Determinism::run_to_run), 1U) << "sums of chunks round otherwise";
    EXPECT_EQ(calls([](Program& p) {  // a row belongs to two ranks
                  const Range x = p.buffer(wide), y = p.buffer(wide), own = p.buffer(bytes);
                  p.rows(p.compute({x}, {y}, 100), 64);
                  p.reduce_scatter(y, own);
              }),
              1U);
    EXPECT_EQ(calls([](Program& p) {  // cut for a sum already, at other places
                  const Range x = p.buffer(wide), y = p.buffer(wide), z = p.buffer(wide), own = p.buffer(bytes);
                  p.rows(p.compute({x}, {y, z}, 100), 3 * rows);
                  p.all_reduce(y);
                  p.reduce_scatter(z, own);
              }),
              3U);
    const auto many = graphs_of(40, [](Program& p) {
        const Range x = p.buffer(40 * bytes), y = p.buffer(40 * bytes), own = p.buffer(bytes);
        p.rows(p.compute({x}, {y}, 1000), 40 * rows);
        p.reduce_scatter(y, own);
    });
    EXPECT_EQ(collectives_of(optimise(many, chunks(0))[0].graph).size(), 1U) << "a step would be 80 or more";
}

// The step in its chunks is what the whole is, and nothing else.
TEST(Split, is_proved_row_by_row) {
    const auto captured = graphs_of(1, [](Program& p) {
        const Range x = p.buffer(64), y = p.buffer(32), w = p.buffer(8);
        p.rows(p.compute({x, w}, {y}), 8, {1});
    });
    const auto chunk = [&](std::uint64_t from, std::uint64_t to) {
        Node n = captured[0].nodes[0];
        n.id = static_cast<int>(to);
        n.rows = to - from;
        n.pieces[0].reads[0] = {0, from * 8, n.rows * 8};
        n.pieces[0].writes[0] = {1, from * 4, n.rows * 4};
        return n;
    };
    const auto holds = [&](std::vector<Node> nodes) {
        Graph graph = captured[0];
        graph.nodes = std::move(nodes);
        return static_cast<bool>(prove(captured, {graph}));
    };
    EXPECT_TRUE(holds({chunk(0, 3), chunk(3, 8)}));
    EXPECT_TRUE(holds({chunk(5, 8), chunk(0, 5)})) << "in any order";
    EXPECT_FALSE(holds({chunk(0, 3), chunk(4, 8)})) << "a row is missing";
    Node wrong = chunk(3, 8);
    wrong.pieces[0].reads[0].offset -= 8;
    EXPECT_FALSE(holds({chunk(0, 3), wrong})) << "the rows before";
    wrong = chunk(3, 8);
    wrong.pieces[0].reads[0].offset += 4;
    wrong.pieces[0].reads[0].bytes -= 5 * 4;
    EXPECT_FALSE(holds({chunk(0, 3), wrong})) << "half rows";
    wrong = chunk(3, 8);
    wrong.pieces[0].reads[1].bytes = 4;
    EXPECT_FALSE(holds({chunk(0, 3), wrong})) << "less of what each takes whole";
}

}  // namespace
}  // namespace tutti::graph
