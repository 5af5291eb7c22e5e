#include "graph/test_graphs.hpp"

#include <gtest/gtest.h>

namespace tutti::graph {
namespace {

using test::each;
using test::graphs_of;
using test::kinds_of;
using test::Program;

/// By node of rank 1, the calls that it makes; the pass is proved.
std::vector<std::vector<int>> calls_after(const std::function<void(Program&)>& program,
                                          std::uint64_t bucket_bytes = 1 << 20,
                                          Determinism determinism = Determinism::fast) {
    const auto before = graphs_of(2, program, determinism);
    OptimiseOptions options;
    options.bucket_bytes = bucket_bytes;
    const auto graphs = each(before, &make_buckets, options);
    EXPECT_TRUE(prove(before, graphs)) << test::faults_of(prove(before, graphs));
    std::vector<std::vector<int>> calls;
    for (const Node& n : graphs[1].nodes) {
        auto& list = calls.emplace_back();
        for (const Piece& p : n.pieces) list.push_back(p.call);
    }
    EXPECT_EQ(graphs[1].changed(), calls.size() != before[1].nodes.size());
    return calls;
}
using Calls = std::vector<std::vector<int>>;

TEST(Buckets, hold_calls_of_a_kind_that_do_not_need_each_other) {
    EXPECT_EQ(calls_after([](Program& p) {
                  for (int i = 0; i < 3; ++i) p.all_reduce(p.buffer(64));
                  for (int i = 0; i < 2; ++i) p.all_reduce(p.buffer(64), ReduceOp::max);
                  for (int i = 0; i < 2; ++i) p.all_reduce(p.buffer(64), ReduceOp::sum, int32);
                  for (int i = 0; i < 2; ++i) p.broadcast(p.buffer(64), i);
                  for (int i = 0; i < 2; ++i) p.all_gather(p.buffer(32), p.buffer(64));
                  for (int i = 0; i < 2; ++i) p.reduce_scatter(p.buffer(64), p.buffer(32));
              }),
              (Calls{{0, 1, 2}, {3, 4}, {5, 6}, {7}, {8}, {9, 10}, {11, 12}}));
}

TEST(Buckets, have_steps_that_need_them_behind_them) {
    EXPECT_EQ(calls_after([](Program& p) {
                  const Range x = p.buffer(64), y = p.buffer(64), z = p.buffer(64), w = p.buffer(64);
                  p.all_reduce(x);
                  p.compute({x}, {z});  // 1: needs it
                  p.compute({}, {w});   // 2: does not
                  p.compute({z}, {z});  // 3: needs it by way of 1
                  p.all_reduce(y);
              }),
              (Calls{{2}, {0, 4}, {1}, {3}}));
}

TEST(Buckets, do_not_hold_what_needs_one_of_them) {
    EXPECT_EQ(calls_after([](Program& p) {
                  const Range x = p.buffer(64), y = p.buffer(64);
                  p.all_reduce(x);
                  p.compute({x}, {y});
                  p.all_reduce(y);
                  p.all_reduce(Program::part(y, 0, 4));  // in place, the same bytes
              }),
              (Calls{{0}, {1}, {2}, {3}}));
}

TEST(Buckets, of_different_kinds_wait_for_each_other_s_results) {
    EXPECT_EQ(calls_after([](Program& p) {
                  const Range x = p.buffer(64), y = p.buffer(64), own = p.buffer(32), all = p.buffer(64),
                              z = p.buffer(64);
                  p.all_reduce(x);           // 0
                  p.all_gather(own, all);    // 1
                  p.compute({x, all}, {y});  // 2: needs both
                  p.all_reduce(z);           // 3: joins 0
                  p.all_reduce(y);           // 4: needs 2, so 0 and 3 go
              }),
              (Calls{{0, 3}, {1}, {2}, {4}}));
}

TEST(Buckets, stay_below_their_size_and_begin_with_what_is_needed_first) {
    EXPECT_EQ(calls_after(
                  [](Program& p) {
                      std::vector<Range> x;
                      for (int i = 0; i < 4; ++i) x.push_back(p.buffer(64));
                      for (const Range& r : x) p.all_reduce(r);
                      p.compute({x[3]}, {x[3]});  // 4
                      p.compute({x[1]}, {x[1]});  // 5
                  },
                  128),
              (Calls{{3, 1}, {0, 2}, {4}, {5}}));
    EXPECT_EQ(calls_after(
                  [](Program& p) {
                      p.all_reduce(p.buffer(64));
                      p.all_reduce(p.buffer(128));  // as large as a bucket
                      p.all_reduce(p.buffer(64));
                  },
                  128),
              (Calls{{1}, {0, 2}}));
}

TEST(Buckets, that_are_full_do_not_wait_for_more) {
    EXPECT_EQ(calls_after(
                  [](Program& p) {
                      const Range y = p.buffer(8);
                      p.all_reduce(p.buffer(64));
                      p.all_reduce(p.buffer(64));
                      p.compute({}, {y});
                      p.all_reduce(p.buffer(64));
                  },
                  128),
              (Calls{{0, 1}, {2}, {3}}));
}

TEST(Buckets, end_at_messages_and_barriers) {
    EXPECT_EQ(calls_after([](Program& p) {
                  const Range x = p.buffer(8);
                  p.all_reduce(p.buffer(64));
                  if (p.rank() == 0)
                      p.send(x, 1);
                  else
                      p.receive(x, 0);
                  p.all_reduce(p.buffer(64));
                  p.barrier();
                  p.all_reduce(p.buffer(64));
              }),
              (Calls{{0}, {1}, {2}, {3}, {4}}));
}

TEST(Buckets, take_asynchronous_calls_with_their_waits) {
    EXPECT_EQ(calls_after([](Program& p) {
                  const Range x = p.buffer(64), y = p.buffer(64);
                  const int first = p.all_reduce(x), second = p.all_reduce(y);
                  p.start(first);
                  p.start(second);
                  p.wait(first);
                  p.compute({x}, {x});
                  p.wait(second);
              }),
              (Calls{{0, 1}, {2}}));
}

TEST(Buckets, hold_no_sums_that_would_round_otherwise) {
    const auto program = [](Program& p) {
        for (int i = 0; i < 2; ++i) p.all_reduce(p.buffer(64));
        for (int i = 0; i < 2; ++i) p.all_reduce(p.buffer(64), ReduceOp::sum, int32);
    };
    EXPECT_EQ(calls_after(program, 1 << 20, Determinism::run_to_run), (Calls{{0}, {1}, {2, 3}}));
}

TEST(Buckets, are_nine_times_latency_times_bandwidth_if_nobody_says_otherwise) {
    const GroupInfo group{.latency_us = 10, .us_per_byte = 0.01};
    EXPECT_EQ(Settings().bucket_bytes(group), 9000U);
}

}  // namespace
}  // namespace tutti::graph
