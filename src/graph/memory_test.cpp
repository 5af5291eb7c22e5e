#include "graph/packing.hpp"
#include "graph/test_graphs.hpp"

#include <gtest/gtest.h>

#include <random>

namespace tutti::graph {
namespace {

using test::graphs_of;
using test::Program;

std::vector<Lifetime> random_blocks(std::uint32_t seed, int count) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
    std::vector<Lifetime> blocks;
    for (int i = 0; i < count; ++i) {
        const int first = below(count), length = below(5) == 0 ? below(count) : below(count / 8 + 1);
        blocks.push_back({first, std::min(first + length, count), packing_alignment << below(8)});
    }
    return blocks;
}

TEST(Packing, keeps_blocks_that_live_at_the_same_time_apart) {
    for (std::uint32_t seed = 0; seed < 30; ++seed) {
        std::vector<Lifetime> blocks = random_blocks(seed, 60);
        blocks[seed].bytes += 5;
        const Packing packing = pack(blocks);
        EXPECT_GE(packing.bytes, most_alive(blocks));
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            EXPECT_EQ(packing.offsets[i] % packing_alignment, 0U);
            EXPECT_LE(packing.offsets[i] + blocks[i].bytes, packing.bytes);
            for (std::size_t j = 0; j < i; ++j) {
                if (blocks[i].last < blocks[j].first || blocks[j].last < blocks[i].first) continue;
                EXPECT_TRUE(packing.offsets[i] + blocks[i].bytes <= packing.offsets[j] ||
                            packing.offsets[j] + blocks[j].bytes <= packing.offsets[i])
                    << "seed " << seed << ": " << i << " and " << j;
            }
        }
    }
}

TEST(Packing, of_nothing_is_nothing) {
    EXPECT_EQ(pack({}).bytes, 0U);
    EXPECT_EQ(most_alive({}), 0U);
}

/// The graph after the pass, which is proved.
Graph with_shared_memory(const std::function<void(Program&)>& program) {
    const auto before = graphs_of(2, program);
    const auto graphs = test::each(before, &reuse_memory);
    EXPECT_TRUE(prove(before, graphs)) << test::faults_of(prove(before, graphs));
    EXPECT_FALSE(graphs[1].changed()) << "communication is as it was";
    EXPECT_LE(graphs[1].peak_bytes(), before[1].peak_bytes());
    return graphs[1];
}
bool shares(const Graph& graph) {
    return graph.arena >= 0;
}

TEST(SharedMemory, of_values_that_are_not_needed_at_once_is_shared) {
    const Graph graph = with_shared_memory([](Program& p) {
        const Range x = p.buffer(1024), a = p.buffer(512), b = p.buffer(512), c = p.buffer(512);
        for (const Range& r : {a, b, c}) p.temporary(r);
        p.compute({x}, {a});
        p.compute({a}, {b});
        p.compute({b}, {c});
        p.compute({c}, {x});
    });
    EXPECT_EQ(graph.peak_bytes(), 1024U + 2 * 512) << graph.to_text();
    EXPECT_EQ(Graph::from_text(graph.to_text()), graph);
    EXPECT_NE(graph.hash(), with_shared_memory([](Program& p) { p.buffer(8); }).hash());
}

TEST(SharedMemory, of_one_buffer_is_free_between_its_values) {
    const Graph graph = with_shared_memory([](Program& p) {
        const Range x = p.buffer(64), scratch = p.buffer(512), other = p.buffer(512);
        p.temporary(scratch);
        p.temporary(other);
        p.compute({x}, {scratch});
        p.compute({scratch}, {x});
        p.compute({x}, {other});
        p.compute({other}, {x});
        p.compute({x}, {scratch});
        p.compute({scratch}, {x});
    });
    EXPECT_EQ(graph.peak_bytes(), 64U + 512) << graph.to_text();
}

TEST(SharedMemory, of_an_asynchronous_call_is_its_own_until_the_wait) {
    const auto program = [](bool later) {
        return [later](Program& p) {
            const Range x = p.buffer(64), a = p.buffer(512), b = p.buffer(512);
            p.temporary(a);
            p.temporary(b);
            p.compute({x}, {a});
            const int sum = p.all_reduce(a);
            p.start(sum);
            if (!later) p.wait(sum);
            p.compute({x}, {b});
            p.compute({b}, {x});
            if (later) p.wait(sum);
        };
    };
    EXPECT_TRUE(shares(with_shared_memory(program(false))));
    EXPECT_FALSE(shares(with_shared_memory(program(true)))) << "nobody reads the sum, but it is still being made";
}

TEST(SharedMemory, stays_where_somebody_counts_on_its_place_or_on_what_it_held) {
    const auto with = [](const std::function<void(Program&, const Range&)>& first) {
        return shares(with_shared_memory([&](Program& p) {
            const Range x = p.buffer(64), a = p.buffer(512), b = p.buffer(512);
            p.temporary(a);
            p.temporary(b);
            first(p, a);
            p.compute({a}, {x});
            p.compute({x}, {b});
            p.compute({b}, {x});
        }));
    };
    EXPECT_TRUE(with([](Program& p, const Range& a) { p.compute({}, {a}); }));
    EXPECT_FALSE(with([](Program& p, const Range& a) { p.fix(p.compute({}, {a})); })) << "a function without views";
    EXPECT_FALSE(with([](Program& p, const Range& a) { p.compute({}, {Program::part(a, 1, 511)}); }))
        << "a byte is read that nobody has written";
    EXPECT_FALSE(shares(with_shared_memory([](Program& p) {  // a byte may be read afterwards
        const Range x = p.buffer(64), a = p.buffer(512), b = p.buffer(512);
        p.temporary(Program::part(a, 0, 511));
        p.temporary(b);
        p.compute({}, {a});
        p.compute({a}, {x});
        p.compute({x}, {b});
        p.compute({b}, {x});
    })));
}

/// Steps and collectives on random temporaries, whose values come and go. Returns the buffers' sizes too.
void random_program(Program& p, std::uint32_t seed) {
    std::mt19937 random(seed);  // equal on all ranks
    const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
    const Range out = p.buffer(64);
    std::vector<Range> alive;
    for (int i = 0; i < 120; ++i) {
        if (alive.size() > 2 + below(8)) {  // one value ends in the result
            const std::size_t last = below(alive.size());
            p.compute({alive[last], out}, {out});
            alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(last));
            continue;
        }
        const Range made = p.buffer(256 << below(7));
        p.temporary(made);
        if (alive.empty())
            p.compute({}, {made});
        else
            p.compute({alive[below(alive.size())]}, {made});
        alive.push_back(made);
        if (below(3) != 0) continue;
        const int sum = p.all_reduce(made);
        if (below(2) == 0) continue;
        p.start(sum);
        if (alive.size() > 1) p.compute({alive.front()}, {out});
        p.wait(sum);
    }
    for (const Range& r : alive) p.compute({r, out}, {out});
}

// What buffers hold at once at most, counted apart from the pass: a value is there from the step that makes it to the
// last one that uses it.
std::uint64_t needed_at_once(const Graph& graph) {
    std::vector<int> first(graph.buffers.size(), -1), last(graph.buffers.size(), -1);
    for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
        const Node* node = &graph.nodes[static_cast<std::size_t>(i)];
        if (node->kind == Kind::wait) node = &*std::ranges::find(graph.nodes, node->of, &Node::id);
        for (const Piece& p : node->pieces) {
            for (const auto* list : {&p.reads, &p.writes}) {
                for (const Range& r : *list) {
                    if (first[r.buffer] < 0) first[r.buffer] = i;
                    last[r.buffer] = i;
                }
            }
        }
    }
    std::uint64_t most = 0;
    for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
        std::uint64_t now = 0;
        for (std::size_t b = 1; b < graph.buffers.size(); ++b)
            now += first[b] <= i && i <= last[b] ? graph.buffers[b] : 0;
        most = std::max(most, now);
    }
    return most;
}

TEST(SharedMemory, of_random_graphs_is_within_a_twentieth_of_what_is_needed_at_once) {
    for (std::uint32_t seed = 0; seed < 100; ++seed) {
        const auto before = graphs_of(2, [seed](Program& p) { random_program(p, seed); });
        const auto graphs = test::each(before, &reuse_memory);
        ASSERT_TRUE(prove(before, graphs)) << "seed " << seed << ": " << test::faults_of(prove(before, graphs));
        const double ideal = static_cast<double>(needed_at_once(before[0]));
        EXPECT_LE(static_cast<double>(graphs[0].peak_bytes() - 64), 1.05 * ideal) << "seed " << seed;
        EXPECT_LT(graphs[0].peak_bytes(), before[0].peak_bytes()) << "seed " << seed;
    }
}

TEST(SharedMemory, is_stated_before_and_after) {
    const auto results = optimise(graphs_of(2, [](Program& p) {
        const Range x = p.buffer(64), a = p.buffer(512), b = p.buffer(512);
        p.temporary(a);
        p.temporary(b);
        p.compute({x}, {a});
        p.compute({a}, {x});
        p.compute({x}, {b});
        p.compute({b}, {x});
    }));
    EXPECT_EQ(results[0].changes.back().before_bytes, 1088U);
    EXPECT_EQ(results[0].changes.back().after_bytes, 576U);
    EXPECT_TRUE(test::says(results[0].to_text(),
                           ", 1088 -> 576 bytes\n  2 temporaries share 512 bytes instead "
                           "of 1024; 512 are needed at once at most"));
}

}  // namespace
}  // namespace tutti::graph
