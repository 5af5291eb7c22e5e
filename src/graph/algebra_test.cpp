#include "graph/test_graphs.hpp"

#include <gtest/gtest.h>

namespace tutti::graph {
namespace {

using test::each;
using test::graphs_of;
using test::kinds_of;
using test::Program;

/// The kinds of rank 1's nodes after the pass, which is proved.
std::vector<Kind> after(const std::function<void(Program&)>& program, Determinism determinism = Determinism::fast) {
    const auto before = graphs_of(3, program, determinism);
    const auto graphs = each(before, &apply_algebra);
    EXPECT_TRUE(prove(before, graphs)) << test::faults_of(prove(before, graphs));
    for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(graphs[r].changed(), kinds_of(graphs[r]) != kinds_of(before[r]));
    return kinds_of(graphs[1]);
}

TEST(Algebra, a_broadcast_of_what_all_have_is_nothing) {
    EXPECT_EQ(after([](Program& p) {
                  const Range x = p.buffer(48);
                  p.all_reduce(x);
                  p.broadcast(Program::part(x, 16, 16), 2);
                  p.broadcast(x, 0);
              }),
              std::vector{Kind::all_reduce});
    EXPECT_EQ(after([](Program& p) {
                  const Range own = p.buffer(16), x = p.buffer(48);
                  p.all_gather(own, x);
                  p.broadcast(x, 1);
              }),
              std::vector{Kind::all_gather});
}

TEST(Algebra, a_broadcast_of_what_somebody_has_written_to_stays) {
    EXPECT_EQ(after([](Program& p) {
                  const Range x = p.buffer(48);
                  p.all_reduce(x);
                  p.compute({}, {Program::part(x, 47, 1)});
                  p.broadcast(x, 0);
              }),
              (std::vector{Kind::all_reduce, Kind::compute, Kind::broadcast}));
    EXPECT_EQ(after([](Program& p) {
                  const Range x = p.buffer(48);
                  p.all_reduce(Program::part(x, 0, 24));
                  p.all_reduce(Program::part(x, 24, 24));
                  p.broadcast(x, 0);
              }),
              (std::vector{Kind::all_reduce, Kind::all_reduce, Kind::broadcast}))
        << "two results, which could be apart on another rank";
}

TEST(Algebra, min_and_max_of_equal_values_are_nothing) {
    for (const ReduceOp& op : {ReduceOp::min, ReduceOp::max}) {
        EXPECT_EQ(after([op](Program& p) {
                      const Range x = p.buffer(48);
                      p.all_reduce(x, op);
                      p.all_reduce(x, op);
                      p.all_reduce(x, op);
                  }),
                  std::vector{Kind::all_reduce});
    }
    EXPECT_EQ(after([](Program& p) {
                  const Range x = p.buffer(48);
                  p.all_reduce(x, ReduceOp::max);
                  p.all_reduce(x, ReduceOp::sum);
              }),
              (std::vector{Kind::all_reduce, Kind::all_reduce}));
}

TEST(Algebra, a_max_scattered_of_gathered_values_is_the_own_block) {
    EXPECT_EQ(after([](Program& p) {
                  const Range own = p.buffer(16), all = p.buffer(48), back = p.buffer(16);
                  p.all_gather(own, all);
                  p.reduce_scatter(all, back, ReduceOp::max);
              }),
              (std::vector{Kind::all_gather, Kind::copy}));
}

TEST(Algebra, a_reduce_scatter_and_its_all_gather_are_an_all_reduce) {
    EXPECT_EQ(after([](Program& p) {
                  const Range x = p.buffer(48), own = p.buffer(16), y = p.buffer(48);
                  p.reduce_scatter(x, own);
                  p.compute({own}, {x});
                  p.all_gather(own, y);
              }),
              (std::vector{Kind::all_reduce, Kind::copy, Kind::compute}));
    EXPECT_EQ(after([](Program& p) {  // in place, the block too
                  const Range x = p.buffer(48), own = p.blocks(x)[static_cast<std::size_t>(p.rank())];
                  p.reduce_scatter(x, own);
                  p.all_gather(own, x);
              }),
              std::vector{Kind::all_reduce});
}

TEST(Algebra, a_reduce_scatter_whose_block_changes_stays) {
    const std::vector both{Kind::reduce_scatter, Kind::compute, Kind::all_gather};
    EXPECT_EQ(after([](Program& p) {
                  const Range x = p.buffer(48), own = p.buffer(16), y = p.buffer(48);
                  p.reduce_scatter(x, own);
                  p.compute({own}, {own});
                  p.all_gather(own, y);
              }),
              both);
    EXPECT_EQ(after([](Program& p) {  // the target is still read
                  const Range x = p.buffer(48), own = p.buffer(16), y = p.buffer(48), z = p.buffer(8);
                  p.reduce_scatter(x, own);
                  p.compute({y}, {z});
                  p.all_gather(own, y);
              }),
              both);
}

TEST(Algebra, keeps_sums_that_would_round_otherwise) {
    const auto program = [](DType dtype, ReduceOp op) {
        return [=](Program& p) {
            const Range x = p.buffer(48), own = p.buffer(16);
            p.reduce_scatter(x, own, op, dtype);
            p.all_gather(own, x);
        };
    };
    const std::vector both{Kind::reduce_scatter, Kind::all_gather}, one{Kind::all_reduce, Kind::copy};
    EXPECT_EQ(after(program(float32, ReduceOp::sum), Determinism::run_to_run), both);
    EXPECT_EQ(after(program(float32, ReduceOp::max), Determinism::run_to_run), one);
    EXPECT_EQ(after(program(int32, ReduceOp::sum)), both) << "gathered as float32";
    EXPECT_EQ(after(program(float32, ReduceOp::sum), Determinism::layout_invariant), one);
}

Range own_block(const Program& p, const Range& whole) {
    return p.blocks(whole)[static_cast<std::size_t>(p.rank())];
}

TEST(Algebra, an_all_reduce_of_which_the_own_block_alone_is_used_is_a_reduce_scatter) {
    EXPECT_EQ(after([](Program& p) {
                  const Range x = p.buffer(48), y = p.buffer(16);
                  p.temporary(x);
                  p.all_reduce(x);
                  p.compute({own_block(p, x)}, {y});
              }),
              (std::vector{Kind::reduce_scatter, Kind::compute}));
    EXPECT_EQ(after([](Program& p) {  // the others are overwritten, as in a sharded optimiser
                  const Range x = p.buffer(48);
                  p.all_reduce(x);
                  p.compute({own_block(p, x)}, {own_block(p, x)});
                  p.all_gather(own_block(p, x), x);
              }),
              (std::vector{Kind::reduce_scatter, Kind::compute, Kind::all_gather}));
}

TEST(Algebra, an_all_reduce_of_which_more_is_used_stays) {
    EXPECT_EQ(after([](Program& p) {  // nothing is temporary
                  const Range x = p.buffer(48), y = p.buffer(16);
                  p.all_reduce(x);
                  p.compute({own_block(p, x)}, {y});
              }),
              (std::vector{Kind::all_reduce, Kind::compute}));
    EXPECT_EQ(after([](Program& p) {  // one byte more
                  const Range x = p.buffer(48), y = p.buffer(16);
                  p.temporary(x);
                  p.all_reduce(x);
                  p.compute({Program::part(x, 0, 17)}, {y});
                  p.compute({own_block(p, x)}, {y});
              }),
              (std::vector{Kind::all_reduce, Kind::compute, Kind::compute}));
    EXPECT_EQ(after([](Program& p) {  // blocks that are not equal: 13 elements of 3 ranks
                  const Range x = p.buffer(52), y = p.buffer(4);
                  p.temporary(x);
                  p.all_reduce(x);
                  p.compute({Program::part(x, 16 * static_cast<std::uint64_t>(p.rank()), 4)}, {y});
              }),
              (std::vector{Kind::all_reduce, Kind::compute}));
    EXPECT_EQ(after(
                  [](Program& p) {
                      const Range x = p.buffer(48), y = p.buffer(16);
                      p.temporary(x);
                      p.all_reduce(x);
                      p.compute({own_block(p, x)}, {y});
                  },
                  Determinism::run_to_run),
              (std::vector{Kind::all_reduce, Kind::compute}))
        << "it would round otherwise";
}

TEST(Algebra, a_reduce_and_the_broadcast_of_its_result_are_an_all_reduce) {
    EXPECT_EQ(after([](Program& p) {
                  const Range x = p.buffer(48), y = p.buffer(16);
                  p.reduce(x, 2);
                  p.compute({}, {y});
                  p.broadcast(x, 2);
              }),
              (std::vector{Kind::all_reduce, Kind::compute}));
    EXPECT_EQ(after([](Program& p) {  // and a second broadcast of it is nothing
                  const Range x = p.buffer(48);
                  p.reduce(x, 0, ReduceOp::max);
                  p.broadcast(x, 0);
                  p.broadcast(x, 1);
              }),
              std::vector{Kind::all_reduce});
}

TEST(Algebra, a_reduce_whose_result_is_not_broadcast_as_it_is_stays) {
    const auto between = [](const std::function<void(Program&, const Range&)>& f, int root = 2) {
        std::vector<Kind> kinds = after([&](Program& p) {
            const Range x = p.buffer(48);
            p.reduce(x, 2);
            f(p, x);
            p.broadcast(x, root);
        });
        std::erase(kinds, Kind::compute);
        return kinds;
    };
    const std::vector both{Kind::reduce, Kind::broadcast};
    EXPECT_EQ(between([](Program& p, const Range& x) { p.compute({x}, {x}); }), both);
    EXPECT_EQ(between([](Program& p, const Range& x) { p.compute({Program::part(x, 0, 1)}, {p.buffer(8)}); }), both)
        << "the inputs are still read there";
    EXPECT_EQ(between([](Program&, const Range&) {}, 1), both) << "by another root";
}

TEST(Algebra, leaves_alone_what_it_is_told_to_keep) {
    const auto before = graphs_of(2, [](Program& p) {
        const Range x = p.buffer(48);
        p.all_reduce(x);
        p.broadcast(x, 0);
    });
    Settings settings = test::settings_of(before[0]);
    settings.keep.insert({"world", 1});
    EXPECT_TRUE(apply_algebra(before[0], settings).graph == before[0]);
}

// Rank 0 alone writes between the two: to it the broadcast is needed, to the others it does not seem so.
TEST(Optimising, leaves_alone_what_ranks_would_change_differently) {
    const auto before = graphs_of(3, [](Program& p) {
        const Range x = p.buffer(48), y = p.buffer(48);
        p.all_reduce(x);
        if (p.rank() == 0) p.compute({}, {x});
        p.broadcast(x, 0);
        p.all_reduce(y);
        p.broadcast(y, 0);
    });
    OptimiseOptions options;
    options.buckets = false;
    const auto results = optimise(before, options);
    for (const Optimised& o : results) {
        std::vector<Kind> kinds = kinds_of(o.graph);
        std::erase(kinds, Kind::compute);
        EXPECT_EQ(kinds, (std::vector{Kind::all_reduce, Kind::broadcast, Kind::all_reduce})) << o.to_text();
        EXPECT_TRUE(o.graph.changed());
        EXPECT_EQ(o.graph.collectives_hash(0), results[0].graph.collectives_hash(0));
    }
}

TEST(Optimising, leaves_an_all_reduce_of_which_one_rank_uses_more) {
    const auto results = optimise(graphs_of(3, [](Program& p) {
        const Range x = p.buffer(48), y = p.buffer(48);
        p.temporary(x);
        p.all_reduce(x);
        if (p.rank() == 2) p.compute({x}, {y});
        p.compute({own_block(p, x)}, {Program::part(y, 0, 16)});
    }));
    for (const Optimised& o : results) EXPECT_EQ(o.graph.nodes.front().kind, Kind::all_reduce) << o.to_text();
}

TEST(Optimising, says_which_rule_it_has_used) {
    const auto said = [](const std::function<void(Program&)>& program) {
        return optimise(graphs_of(2, program)).front().to_text();
    };
    EXPECT_TRUE(test::says(said([](Program& p) {
                               const Range x = p.buffer(64), y = p.buffer(32);
                               p.temporary(x);
                               p.all_reduce(x);
                               p.compute({own_block(p, x)}, {y});
                           }),
                           "all_reduce of float32 × 16, sum (line 0) became a reduce_scatter: each rank uses its "
                           "own block alone"));
    EXPECT_TRUE(test::says(said([](Program& p) {
                               const Range x = p.buffer(64);
                               p.reduce(x, 1);
                               p.broadcast(x, 1);
                           }),
                           "reduce of float32 × 16, sum, root 1 (line 0) and broadcast of float32 × 16, root 1 "
                           "(line 1) became one all_reduce"));
}

// Ranks look alike to themselves, and have their equal values in different places.
TEST(Optimising, goes_without_rules_whose_result_does_not_prove) {
    const auto before = graphs_of(2, [](Program& p) {
        const Range x = p.buffer(64);
        p.all_reduce(x, ReduceOp::max);
        p.all_reduce(Program::part(x, p.rank() == 0 ? 0 : 32, 32), ReduceOp::max);
    });
    const auto results = optimise(before);
    for (const Optimised& o : results) EXPECT_EQ(kinds_of(o.graph), (std::vector{Kind::all_reduce, Kind::all_reduce}));
    EXPECT_TRUE(prove(before, test::graphs_in(results)));
}

TEST(Optimising, keeps_the_program_s_order_where_that_is_asked_for) {
    const auto before = graphs_of(2, [](Program& p) {
        const Range x = p.buffer(64), y = p.buffer(64), z = p.buffer(64);
        p.all_reduce(x);
        p.compute({x}, {z}, 500);
        p.all_reduce(y);
    });
    OptimiseOptions options;
    options.overlap_us = 1;
    EXPECT_FALSE(optimise(before, options)[0].graph == before[0]);
    options.order = Order::program;
    EXPECT_TRUE(optimise(before, options)[0].graph == before[0]);
}

TEST(Optimising, refuses_graphs_that_cannot_run) {
    EXPECT_THROW((void)optimise(graphs_of(2,
                                          [](Program& p) {
                                              const Range x = p.buffer(64);
                                              if (p.rank() == 0) p.all_reduce(x);
                                          })),
                 InvalidArgument);
}

}  // namespace
}  // namespace tutti::graph
