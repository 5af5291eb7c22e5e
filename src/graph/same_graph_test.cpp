#include "graph/test_graphs.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

namespace tutti::graph {
namespace {

using test::graphs_of;
using test::Program;

void symmetric(Program& p) {
    const Range x = p.buffer(48), own = p.buffer(16), all = p.buffer(48), to = p.buffer(48);
    p.compute({}, {x});
    p.all_reduce(x);
    p.broadcast(x, 1);
    p.scan(x);
    p.reduce_scatter(x, own);
    p.all_gather(own, all);
    p.all_to_all(all, to);
    p.barrier();
}

TEST(Alike, each_ranks_graph_gives_those_of_all) {
    const std::vector<Graph> graphs = graphs_of(3, &symmetric);
    for (const Graph& own : graphs) EXPECT_EQ(as_on_all_ranks(own), graphs) << "of rank " << own.groups.front().rank;
}

TEST(Alike, optimise_asks_nobody_and_gives_what_all_graphs_give) {
    const std::vector<Graph> graphs = graphs_of(3, &symmetric);
    const std::vector<Optimised> all = optimise(graphs);
    for (std::size_t r = 0; r < graphs.size(); ++r) {
        const Optimised one = optimise(graphs[r], {.alike = true});
        EXPECT_EQ(one.graph, all[r].graph);
        EXPECT_TRUE(one.graph.changed()) << "the broadcast of what all ranks have";
    }
}

void refused(const std::function<void(Program&)>& program, const std::string& words) {
    for (const Graph& own : graphs_of(3, program)) {
        try {
            optimise(own, {.alike = true});
            ADD_FAILURE() << "rank " << own.groups.front().rank << ": expected InvalidArgument: " << words;
        } catch (const InvalidArgument& error) {
            EXPECT_TRUE(test::says(error.what(), words));
        }
    }
}

TEST(Alike, what_one_rank_cannot_tell_of_others_is_refused) {
    refused([](Program& p) { p.reduce(p.buffer(16), 0); }, "reduce of");
    refused([](Program& p) { p.exscan(p.buffer(16)); }, "exscan of");
    refused([](Program& p) { p.rank() == 0 ? p.send(p.buffer(16), 1) : p.receive(p.buffer(16), 0); }, "cannot be told");
    Program uneven(0, 3);
    const Range whole = uneven.buffer(48);
    uneven.reduce_scatter(whole, Program::part(whole, 0, 16));
    Graph graph = uneven.graph();
    graph.nodes.front().pieces.front().reads[1].bytes = 8;
    EXPECT_THROW(optimise(graph, {.alike = true}), InvalidArgument);
    graph.groups.push_back(graph.groups.front());
    EXPECT_THROW(optimise(graph, {.alike = true}), InvalidArgument) << "two groups";
}

}  // namespace
}  // namespace tutti::graph
