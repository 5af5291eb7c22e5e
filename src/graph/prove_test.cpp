#include "graph/test_graphs.hpp"

#include <gtest/gtest.h>

namespace tutti::graph {
namespace {

using test::faults_of;
using test::graphs_of;
using test::Program;

bool says(const Proof& proof, const std::string& part) {
    return faults_of(proof).find(part) != std::string::npos;
}

TEST(Proofs, hold_for_programs_whose_ranks_match) {
    const auto graphs = graphs_of(3, [](Program& p) {
        const Range x = p.buffer(96), own = p.buffer(32), all = p.buffer(96);
        p.all_reduce(x);
        p.reduce_scatter(x, own);
        p.all_gather(own, all);
        p.all_to_all(x, all);
        p.broadcast(all, 2);
        p.barrier();
        if (p.rank() == 0) p.send(x, 1);
        if (p.rank() == 1) p.receive(all, 0);
    });
    EXPECT_TRUE(prove(graphs)) << faults_of(prove(graphs));
    EXPECT_TRUE(prove(graphs, graphs));
}

TEST(Proofs, find_collectives_in_another_order_with_both_call_sites) {
    const Proof proof = prove(graphs_of(2, [](Program& p) {
        const Range x = p.buffer(8), y = p.buffer(16);
        p.all_reduce(p.rank() == 0 ? x : y);
        p.all_reduce(p.rank() == 0 ? y : x);
    }));
    ASSERT_FALSE(proof);
    EXPECT_EQ(proof.faults.front(),
              "collective #1 of group \"world\": rank 0 has all_reduce of float32 × 2, sum (line 0), but rank 1 has "
              "all_reduce of float32 × 4, sum (line 0): other sizes");
}

// pytorch#189454: a pass moves a collective over a receive on one rank alone.
TEST(Proofs, find_a_collective_that_has_overtaken_a_receive) {
    const auto program = [](bool overtakes) {
        return graphs_of(2, [&](Program& p) {
            const Range x = p.buffer(8), y = p.buffer(8);
            if (p.rank() == 0) {
                p.receive(x, 1);
                p.all_reduce(y);
            } else if (overtakes) {
                p.all_reduce(y);
                p.send(x, 0);
            } else {
                p.send(x, 0);
                p.all_reduce(y);
            }
        });
    };
    EXPECT_TRUE(prove(program(false)));
    EXPECT_TRUE(
        says(prove(program(true)),
             "ranks wait forever: rank 0 in node 0, receive of uint8 × 8 from rank 1 (line 0); rank 1 in node 0, "
             "all_reduce of float32 × 2, sum (line 0)"));
}

TEST(Proofs, give_messages_to_receives_in_the_order_in_which_they_are_posted) {
    const auto graphs = graphs_of(2, [](Program& p) {
        const Range x = p.buffer(8), y = p.buffer(16);
        if (p.rank() == 0) {
            p.send(x, 1);
            p.send(y, 1);
            return;
        }
        const int first = p.receive(x, 0), second = p.receive(y, 0);
        p.start(first);
        p.start(second);
        p.wait(second);
        p.wait(first);
    });
    EXPECT_TRUE(prove(graphs)) << faults_of(prove(graphs));
}

// A root goes on before the others come, as far as there is room for its data.
TEST(Proofs, of_what_runs_without_room_for_what_roots_send_want_that_it_still_does) {
    const auto program = [](bool root_first) {
        return graphs_of(2, [&](Program& p) {
            const Range x = p.buffer(8), y = p.buffer(8);
            if (p.rank() == 0 && root_first) p.broadcast(x, 0);
            if (p.rank() == 0) p.send(y, 1);
            if (p.rank() == 1) p.receive(y, 0);
            if (p.rank() == 1 || !root_first) p.broadcast(x, 0);
        });
    };
    EXPECT_TRUE(prove(program(true)));
    EXPECT_TRUE(prove(program(true), program(true)));
    EXPECT_TRUE(says(prove(program(false), program(true)), "ranks wait forever"));
}

TEST(Proofs, find_what_touches_a_call_under_way) {
    const auto program = [](int fault) {
        return graphs_of(2, [&](Program& p) {
            const Range x = p.buffer(16), y = p.buffer(16);
            const int sum = p.all_reduce(x);
            p.start(sum);
            if (fault == 1) p.compute({Program::part(x, 12, 4)}, {y});
            if (fault == 2) p.compute({y}, {Program::part(x, 0, 1)});
            if (fault != 3) p.wait(sum);
            p.compute({fault == 3 ? y : x}, {y});
        });
    };
    EXPECT_TRUE(prove(program(0)));
    EXPECT_TRUE(says(prove(program(1)), "expected a wait between them"));
    EXPECT_TRUE(says(prove(program(2)), "expected a wait between them"));
    EXPECT_TRUE(says(prove(program(3)), "nobody waits for all_reduce"));
}

TEST(Proofs, find_messages_that_nobody_receives_or_that_are_too_long) {
    const auto program = [](std::uint64_t bytes, bool receives) {
        return graphs_of(2, [&](Program& p) {
            const Range x = p.buffer(8);
            if (p.rank() == 0) p.send(x, 1);
            if (p.rank() == 1 && receives) p.receive(Program::part(x, 0, bytes), 0);
        });
    };
    EXPECT_TRUE(prove(program(8, true)));
    EXPECT_TRUE(says(prove(program(4, true)), "expects 4 bytes, but 8 come"));
    EXPECT_TRUE(says(prove(program(8, false)), "rank 0 sends 1 messages to rank 1 that it does not receive"));
}

TEST(Proofs, a_root_that_only_sends_need_not_wait) {
    EXPECT_TRUE(prove(graphs_of(2, [](Program& p) {
        const Range x = p.buffer(8), y = p.buffer(8);
        if (p.rank() == 0) {
            p.broadcast(x, 0);
            p.send(y, 1);
        } else {
            p.receive(y, 0);
            p.broadcast(x, 0);
        }
    })));
}

// The two programs have one collective more or less each, and give the same.
std::vector<Graph> summed(bool at_once, Determinism determinism, std::uint64_t bytes = 24) {
    return graphs_of(
        3,
        [&](Program& p) {
            const Range x = p.buffer(bytes), own = p.buffer(bytes / 3);
            p.temporary(own);
            if (at_once) {
                p.all_reduce(x);
            } else {
                p.reduce_scatter(x, own);
                p.all_gather(own, x);
            }
        },
        determinism);
}
TEST(Proofs, sums_are_equal_in_any_order_of_ranks_unless_runs_must_round_alike) {
    for (const Determinism d : {Determinism::fast, Determinism::layout_invariant})
        EXPECT_TRUE(prove(summed(false, d), summed(true, d))) << faults_of(prove(summed(false, d), summed(true, d)));
    EXPECT_FALSE(prove(summed(false, Determinism::run_to_run), summed(true, Determinism::run_to_run)));
}

TEST(Proofs, follow_values_through_parts_of_buffers) {
    const auto program = [](std::uint64_t first, std::uint64_t second) {
        return graphs_of(2, [&](Program& p) {
            const Range x = p.buffer(40);
            p.all_reduce(Program::part(x, 0, first));
            if (second > 0) p.all_reduce(Program::part(x, first, second));
        });
    };
    EXPECT_TRUE(prove(program(40, 0), program(24, 16))) << "the same sums, in two calls";
    EXPECT_FALSE(prove(program(40, 0), program(24, 12)));
    EXPECT_TRUE(prove(program(24, 16), program(20, 20)));
}

TEST(Proofs, of_min_and_max_know_that_twice_is_once) {
    const auto program = [](int times, ReduceOp op) {
        return graphs_of(2, [&](Program& p) {
            const Range x = p.buffer(16);
            for (int i = 0; i < times; ++i) p.all_reduce(x, op);
        });
    };
    EXPECT_TRUE(prove(program(1, ReduceOp::max), program(2, ReduceOp::max)));
    EXPECT_FALSE(prove(program(1, ReduceOp::sum), program(2, ReduceOp::sum)));
}

// What ranks get of a prefix differs: a broadcast of it is not what they have already, as that of a sum is.
TEST(Proofs, of_prefixes_know_that_each_rank_gets_another) {
    const auto keeps_the_broadcast = [](const std::function<void(Program&, const Range&)>& combine) {
        const auto graphs = graphs_of(3, [&](Program& p) {
            const Range x = p.buffer(16);
            combine(p, x);
            p.broadcast(x, 1);
            p.compute({x}, {});
        });
        EXPECT_EQ(faults_of(prove(graphs)), "");
        return optimise(graphs).front().graph.nodes.size() == graphs.front().nodes.size();
    };
    EXPECT_TRUE(keeps_the_broadcast([](Program& p, const Range& x) { p.scan(x); }));
    EXPECT_TRUE(keeps_the_broadcast([](Program& p, const Range& x) { p.exscan(x); }));
    EXPECT_FALSE(keeps_the_broadcast([](Program& p, const Range& x) { p.all_reduce(x); }));
}

TEST(Proofs, compare_what_steps_without_results_have_read) {
    const auto program = [](bool late) {
        return graphs_of(2, [&](Program& p) {
            const Range x = p.buffer(16);
            if (!late) p.compute({x}, {});
            p.all_reduce(x);
            if (late) p.compute({x}, {});
        });
    };
    auto early = program(false), late = program(true);
    for (Graph& g : late) {
        for (Node& n : g.nodes) n.pieces[0].call = n.kind == Kind::compute ? 0 : 1;
    }
    EXPECT_TRUE(says(prove(early, late), "reads other values"));
}

TEST(Proofs, of_a_part_know_its_ranks_by_their_numbers_in_the_world) {
    auto graphs = graphs_of(2, [](Program& p) {
        const Range x = p.buffer(8);
        if (p.rank() == 0)
            p.send(x, 5);
        else
            p.receive(x, 3);
        p.all_reduce(x);
    });
    for (Graph& g : graphs) g.groups[0].ranks = {3, 5};
    EXPECT_TRUE(prove(graphs, graphs)) << faults_of(prove(graphs, graphs));
}

TEST(Proofs, refuse_graphs_that_are_not_those_of_all_ranks) {
    auto graphs = graphs_of(2, [](Program& p) { p.barrier(); });
    graphs.pop_back();
    EXPECT_TRUE(says(prove(graphs), "of which there is no graph"));
    graphs.push_back(graphs.front());
    EXPECT_TRUE(says(prove(graphs), "two graphs are of rank 0"));
    EXPECT_TRUE(says(prove(graphs, {}), "expected as many"));
}

TEST(Proofs, number_graphs_without_groups_so_that_all_ranks_are_there) {
    auto graphs = graphs_of(3, [](Program& p) {
        const Range x = p.buffer(8);
        if (p.rank() == 0) p.send(x, 3);
        if (p.rank() == 1) p.receive(x, 2);
        if (p.rank() == 2) p.compute({}, {x});
    });
    for (Graph& g : graphs) g.groups[0].ranks = {2, 3, 7};
    graphs[2].groups.clear();
    EXPECT_TRUE(prove(graphs, graphs)) << faults_of(prove(graphs, graphs));
    EXPECT_EQ(ranks_in_world(graphs), (std::vector{2, 3, 7}));
}

}  // namespace
}  // namespace tutti::graph
