// The proof is proved: two hundred faults, each in one rank's optimised graph, are all found.
#include "graph/test_graphs.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <random>

namespace tutti::graph {
namespace {

using test::faults_of;
using test::graphs_of;
using test::Program;

constexpr int ranks = 4;
constexpr std::uint64_t buffer_bytes = 64, slack = 8;

/// Layers with gradients, a sharded one, one that may run in chunks, temporaries, messages around the ring; buffers
/// have room on both sides for wrong offsets.
std::vector<Graph> captured() {
    return graphs_of(ranks, [](Program& p) {
        const auto buffer = [&](std::uint64_t size) { return Program::part(p.buffer(size + 2 * slack), slack, size); };
        const Range input = buffer(buffer_bytes);
        for (int layer = 0; layer < 6; ++layer) {
            const Range gradient = buffer(buffer_bytes), weights = buffer(buffer_bytes),
                        own = buffer(buffer_bytes / ranks), shards = buffer(buffer_bytes);
            const Range scratch = p.buffer(buffer_bytes);
            p.temporary(scratch);
            p.compute({input}, {scratch}, 10);
            p.compute({scratch}, {gradient}, 20);
            p.all_reduce(gradient);
            p.compute({gradient, weights}, {weights}, 20);
            p.reduce_scatter(weights, own);
            p.compute({own}, {own}, 5);
            p.all_gather(own, shards);
            p.all_reduce(shards, ReduceOp::max);
        }
        const Range wide_input = buffer(8 * buffer_bytes), wide = buffer(8 * buffer_bytes);
        p.rows(p.compute({wide_input, input}, {wide}, 30), 16, {1});
        p.all_reduce(wide);
        p.rows(p.compute({wide}, {wide}, 30), 2 * buffer_bytes);
        const Range mine = buffer(2 * buffer_bytes), gathered = buffer(8 * buffer_bytes),
                    scattered = buffer(2 * buffer_bytes);
        p.all_gather(mine, gathered);
        p.rows(p.compute({gathered, input}, {wide_input}, 30), 32, {1});
        p.reduce_scatter(wide_input, scattered);
        const Range to = buffer(buffer_bytes), from = buffer(buffer_bytes), shared = buffer(buffer_bytes),
                    traded = buffer(buffer_bytes);
        p.compute({input}, {to}, 30);
        p.send(to, (p.rank() + 1) % ranks, 3);
        p.receive(from, (p.rank() + ranks - 1) % ranks, 3);
        p.broadcast(shared, 2);
        p.all_to_all(from, traded);
    });
}

class Mutation {
 public:
    Mutation(Graph& graph, std::uint32_t seed) : graph_(graph), random_(seed) {}

    /// Returns its name.
    std::string apply(std::uint32_t kind) {
        switch (kind % 4) {
            case 0: return swap_dependent();
            case 1: return drop();
            case 2: return shift();
            default: return reorder();
        }
    }

 private:
    std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
    Node& node(int i) { return graph_.nodes[static_cast<std::size_t>(i)]; }

    std::string swap_dependent() {
        const std::vector<Edge> edges = graph_.edges();
        const Edge edge = edges[below(edges.size())];
        const std::string name =
            "swapped " + describe(graph_, node(edge.from)) + " and " + describe(graph_, node(edge.to));
        std::swap(node(edge.from), node(edge.to));
        return name;
    }
    std::string drop() {
        const std::size_t i = below(graph_.nodes.size());
        const std::string name = "dropped " + describe(graph_, graph_.nodes[i]);
        graph_.nodes.erase(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(i));
        return name;
    }
    std::string shift() {
        for (;;) {
            Node& n = graph_.nodes[below(graph_.nodes.size())];
            if (n.pieces.empty()) continue;
            Piece& p = n.pieces[below(n.pieces.size())];
            const std::uint64_t by = 4 * (1 + below(2));
            const bool in_place = p.reads == p.writes;
            auto& list = p.reads.empty() || (!p.writes.empty() && below(2) == 0) ? p.writes : p.reads;
            if (list.empty()) continue;
            list[below(list.size())].offset += by;
            if (in_place) p.reads = p.writes = list;
            return "shifted a range of " + describe(graph_, n);
        }
    }
    std::string reorder() {
        std::vector<std::pair<int, int>> pairs;
        int last = -1;
        for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
            if (!is_collective(node(i).kind)) continue;
            if (last >= 0) pairs.emplace_back(last, i);
            last = i;
        }
        const auto [first, second] = pairs[below(pairs.size())];
        std::swap(node(first), node(second));
        return "swapped collectives " + describe(graph_, node(first)) + " and " + describe(graph_, node(second));
    }
    Graph& graph_;
    std::mt19937 random_;
};

TEST(Mutations, two_hundred_are_all_found) {
    const std::vector<Graph> before = captured();
    OptimiseOptions options;
    options.bucket_bytes = 3 * buffer_bytes;
    options.overlap_us = 5;
    options.chunks = 2;
    const std::vector<Optimised> optimised = optimise(before, options);
    const std::vector<Graph> after = test::graphs_in(optimised);
    ASSERT_TRUE(prove(before, after)) << faults_of(prove(before, after));
    ASSERT_TRUE(after.front().changed()) << optimised.front().to_text();
    ASSERT_TRUE(std::ranges::any_of(after.front().nodes, &Node::asynchronous)) << optimised.front().to_text();
    ASSERT_GE(after.front().arena, 0) << optimised.front().to_text();
    ASSERT_EQ(std::ranges::count(after.front().nodes, 8U, &Node::rows), 2) << optimised.front().to_text();
    ASSERT_EQ(std::ranges::count(after.front().nodes, 4U, &Node::rows), 2 * ranks) << optimised.front().to_text();
    for (std::uint32_t seed = 0; seed < 200; ++seed) {
        std::vector<Graph> mutated = after;
        const std::size_t rank = seed / 4 % ranks;
        const std::string what = Mutation(mutated[rank], seed).apply(seed);
        const Proof proof = prove(before, mutated);
        EXPECT_FALSE(proof) << "seed " << seed << ": " << what << " on rank " << rank << "\n"
                            << mutated[rank].to_text();
    }
}

TEST(Mutations, of_the_captured_graphs_are_found_too) {
    const std::vector<Graph> before = captured();
    for (std::uint32_t seed = 0; seed < 100; ++seed) {
        std::vector<Graph> mutated = before;
        const std::string what = Mutation(mutated[seed / 4 % ranks], seed).apply(seed);
        EXPECT_FALSE(prove(before, mutated)) << "seed " << seed << ": " << what;
    }
}

#ifdef NDEBUG
TEST(Mutations, ten_thousand_nodes_of_four_ranks_are_proved_within_two_seconds) {
    const auto graphs = graphs_of(ranks, [](Program& p) {
        for (int i = 0; i < 2500; ++i) {
            const Range x = p.buffer(1 << 20), y = p.buffer(1 << 20);
            p.compute({x}, {y});
            const int sum = p.all_reduce(y);
            p.start(sum);
            p.wait(sum);
            p.compute({y}, {x});
        }
    });
    ASSERT_EQ(graphs.front().nodes.size(), 10'000U);
    const std::clock_t start = std::clock();
    EXPECT_TRUE(prove(graphs, graphs));
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 2.0);
}
#endif

}  // namespace
}  // namespace tutti::graph
