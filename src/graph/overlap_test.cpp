#include "graph/test_graphs.hpp"

#include <gtest/gtest.h>

namespace tutti::graph {
namespace {

using test::each;
using test::graphs_of;
using test::Program;

/// Rank 1's nodes in words of a letter and a number; the pass is proved.
std::string order_after(const std::function<void(Program&)>& program, OptimiseOptions options = {}) {
    const auto before = graphs_of(2, program);
    options.overlap_us = 15;
    const auto graphs = each(before, &overlap_collectives, options);
    EXPECT_TRUE(prove(before, graphs)) << test::faults_of(prove(before, graphs));
    EXPECT_FALSE(graphs[1].changed()) << "other ranks may make the plain calls";
    EXPECT_LE(graphs[1].predicted_us(), before[1].predicted_us());
    std::string text;
    for (const Node& n : graphs[1].nodes) {
        const bool starts = n.asynchronous;
        const char letter = n.kind == Kind::wait ? 'w' : n.kind == Kind::compute ? 'c' : starts ? 's' : 'b';
        text += (text.empty() ? "" : " ") + std::string(1, letter) + std::to_string(n.kind == Kind::wait ? n.of : n.id);
    }
    return text;
}
constexpr std::uint64_t is_long = 1000, is_short = 8;

TEST(Overlap, starts_early_and_waits_late) {
    EXPECT_EQ(order_after([](Program& p) {
                  const Range x = p.buffer(is_long), y = p.buffer(8), z = p.buffer(8);
                  p.compute({}, {x});   // 0
                  p.compute({}, {y});   // 1
                  p.all_reduce(x);      // 2
                  p.compute({y}, {z});  // 3
                  p.compute({x}, {y});  // 4
              }),
              "c0 s2 c1 c3 w2 c4");
}

TEST(Overlap, leaves_short_calls_where_they_are) {
    const auto program = [](Program& p) {
        const Range x = p.buffer(is_short), y = p.buffer(8);
        p.compute({}, {x});
        p.compute({}, {y});
        p.all_reduce(x);
        p.compute({y}, {y});
    };
    EXPECT_EQ(order_after(program), "c0 c1 b2 c3");
}

TEST(Overlap, leaves_calls_beside_which_nothing_can_run) {
    EXPECT_EQ(order_after([](Program& p) {
                  const Range x = p.buffer(is_long);
                  p.compute({}, {x});
                  p.all_reduce(x);
                  p.compute({x}, {x});
              }),
              "c0 b1 c2");
}

TEST(Overlap, never_lets_communication_overtake_other_communication) {
    EXPECT_EQ(order_after([](Program& p) {
                  const Range x = p.buffer(is_long), y = p.buffer(is_long), m = p.buffer(8), z = p.buffer(8);
                  p.compute({}, {z}, 30);  // 0
                  if (p.rank() == 0)
                      p.send(m, 1);  // 1
                  else
                      p.receive(m, 0);
                  p.all_reduce(x);          // 2
                  p.compute({z}, {z}, 30);  // 3
                  p.all_reduce(y);          // 4
                  p.compute({x}, {x});      // 5
              }),
              "c0 b1 s2 s4 c3 w2 c5 w4");
}

TEST(Overlap, keeps_what_is_under_way_below_the_bound) {
    OptimiseOptions options;
    options.in_flight_bytes = is_long;
    const auto program = [](Program& p) {
        const Range x = p.buffer(is_long), y = p.buffer(is_long), z = p.buffer(8);
        p.all_reduce(x);      // 0
        p.all_reduce(y);      // 1
        p.compute({}, {z});   // 2
        p.compute({x}, {x});  // 3
    };
    EXPECT_EQ(order_after(program), "s0 s1 c2 w0 c3 w1");
    EXPECT_EQ(order_after(program, options), "b0 s1 c2 c3 w1");
}

TEST(Overlap, places_the_program_s_own_waits_later) {
    EXPECT_EQ(order_after([](Program& p) {
                  const Range x = p.buffer(is_short), y = p.buffer(8);
                  const int sum = p.all_reduce(x);  // 0
                  p.start(sum);
                  p.wait(sum);          // 1
                  p.compute({}, {y});   // 2
                  p.compute({x}, {x});  // 3
              }),
              "s0 c2 w0 c3");
}

// Rank 1 sends only after it has joined the call: rank 0 must not wait for that call before it sends.
TEST(Overlap, has_the_program_s_own_calls_block_only_where_no_other_rank_needs_this_one_meanwhile) {
    const auto program = [](bool sends) {
        return [sends](Program& p) {
            const Range x = p.buffer(is_long), m = p.buffer(8), z = p.buffer(8);
            p.compute({}, {z});  // 0
            const int sum = p.all_reduce(x);
            p.start(sum);
            if (sends && p.rank() == 1) p.send(m, 0);
            if (sends && p.rank() == 0) p.receive(m, 1);
            p.wait(sum);
        };
    };
    EXPECT_EQ(order_after(program(true)), "s1 c0 b2 w1");
    EXPECT_EQ(order_after(program(false)), "s1 c0 w1");
}

TEST(Overlap, goes_above_the_bound_where_the_program_does) {
    OptimiseOptions options;
    options.in_flight_bytes = is_long;
    const auto program = [](bool sends) {
        return [sends](Program& p) {
            const Range x = p.buffer(is_long), y = p.buffer(is_long), m = p.buffer(8);
            const int one = p.all_reduce(x);  // 0
            p.start(one);
            if (sends && p.rank() == 0) p.send(m, 1);
            if (sends && p.rank() == 1) p.receive(m, 0);
            const int other = p.all_reduce(y);
            p.start(other);
            p.compute({}, {m});
            p.wait(one);
            p.wait(other);
        };
    };
    EXPECT_EQ(order_after(program(true), options), "s0 b1 s2 c3 w0 w2");
    EXPECT_EQ(order_after(program(false), options), "b0 s1 c2 w1");
}

TEST(Overlap, says_what_runs_beside_what) {
    Program p(0, 1);
    const Range x = p.buffer(is_long), y = p.buffer(8);
    p.all_reduce(x);
    p.compute({}, {y}, 12.5);
    OptimiseOptions options;
    options.overlap_us = 15;
    const Result result = overlap_collectives(p.graph(), test::settings_of(p.graph(), options));
    EXPECT_EQ(result.text, std::vector<std::string>{
                               "all_reduce of float32 × 250, sum (line 0) runs beside 12.5 us of compute steps"});
}

}  // namespace
}  // namespace tutti::graph
