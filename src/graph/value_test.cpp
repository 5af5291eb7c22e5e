#include "graph/test_graphs.hpp"

#include "support/message_of.hpp"

#include <gtest/gtest.h>

namespace tutti::graph {
namespace {

using test::Program;

bool has_edge(const Graph& graph, int from, int to, Hazard hazard) {
    const std::vector<Edge> edges = graph.edges();
    return std::ranges::find(edges, Edge{from, to, hazard}) != edges.end();
}

TEST(Graphs, know_who_needs_whom_to_the_byte) {
    Program p(0, 2);
    const Range x = p.buffer(100), y = p.buffer(100);
    p.compute({}, {Program::part(x, 0, 60)});                           // 0
    p.compute({Program::part(x, 50, 20)}, {y});                         // 1: ten bytes of 0's
    p.compute({Program::part(x, 60, 40)}, {});                          // 2: none of them
    p.compute({}, {Program::part(x, 65, 10)});                          // 3: after who reads there
    p.compute({}, {Program::part(x, 0, 10)});                           // 4: after who wrote there
    p.compute({Program::part(x, 10, 10)}, {Program::part(x, 10, 10)});  // 5: in place
    const Graph& g = p.graph();
    EXPECT_TRUE(has_edge(g, 0, 1, Hazard::read_after_write));
    EXPECT_TRUE(has_edge(g, 1, 3, Hazard::write_after_read));
    EXPECT_TRUE(has_edge(g, 2, 3, Hazard::write_after_read));
    EXPECT_TRUE(has_edge(g, 0, 4, Hazard::write_after_write));
    EXPECT_TRUE(has_edge(g, 0, 5, Hazard::read_after_write));
    EXPECT_EQ(g.edges().size(), 5U);
}

TEST(Graphs, wait_nodes_stand_for_the_end_of_their_call) {
    Program p(0, 2);
    const Range x = p.buffer(8);
    const int sum = p.all_reduce(x);
    p.start(sum);
    p.wait(sum);
    p.compute({x}, {});
    EXPECT_TRUE(has_edge(p.graph(), 0, 1, Hazard::wait));
    EXPECT_TRUE(has_edge(p.graph(), 1, 2, Hazard::read_after_write));
}

Graph sample(int rank = 0) {
    Program p(rank, 2);
    const Range x = p.buffer(64), y = p.buffer(32), unused = p.buffer(8);
    p.compute({x}, {y}, 2.5);
    const int sum = p.all_reduce(x, ReduceOp::max, int32);
    p.start(sum);
    p.broadcast(y, 1);
    p.wait(sum);
    p.send(y, 1 - rank, 7);
    p.receive(x, 1 - rank, 7);
    p.temporary(unused);
    return p.graph();
}

TEST(Graphs, have_a_hash_that_is_the_same_in_every_process) {
    EXPECT_EQ(sample().hash(), sample().hash());
    EXPECT_EQ(sample().hash(), 0x653506d00b5ae78eULL);
    Graph other = sample();
    other.nodes[0].site = "elsewhere";
    EXPECT_EQ(other.hash(), sample().hash()) << "a call site is not what it does";
    other.nodes[0].pieces[0].reads[0].offset = 1;
    EXPECT_NE(other.hash(), sample().hash());
    EXPECT_FALSE(other == sample());
}

TEST(Graphs, of_ranks_that_agree_have_equal_hashes_of_their_collectives) {
    EXPECT_NE(sample(0).hash(), sample(1).hash());
    EXPECT_EQ(sample(0).collectives_hash(0), sample(1).collectives_hash(0));
    Graph swapped = sample();
    std::swap(swapped.nodes[1], swapped.nodes[2]);
    EXPECT_NE(swapped.collectives_hash(0), sample().collectives_hash(0));
}

TEST(Graphs, can_be_written_and_read_back) {
    Graph g = sample();
    g.nodes[0].name = "with \"quotes\" and \\";
    g.nodes[1].opaque = true;
    g.groups[0].changed = true;
    const Graph back = Graph::from_text(g.to_text());
    EXPECT_TRUE(back == g) << back.to_text() << g.to_text();
    EXPECT_EQ(back.hash(), g.hash());
    EXPECT_EQ(back.to_text(), g.to_text());
}

TEST(Graphs, refuse_texts_with_the_line_and_what_was_expected) {
    const std::string good = sample().to_text();
    const auto refused = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        text.replace(text.find(from), from.size(), to);
        return tutti::test::message_of<InvalidArgument>([&] { (void)Graph::from_text(text); });
    };
    EXPECT_NE(refused("all_reduce", "all_reduced").find("the kind of a node"), std::string::npos);
    EXPECT_NE(refused("0+0:64", "0+1:64").find("a range within the 64 bytes of buffer 0"), std::string::npos);
    EXPECT_NE(refused("0+0:64", "9+0:64").find("a buffer below 3"), std::string::npos);
    EXPECT_NE(refused("int32", "int33").find("line 8"), std::string::npos);
    EXPECT_NE(refused("group 0", "group 4").find("a number below 1"), std::string::npos);
    EXPECT_NE(refused("tutti graph", "another graph").find("line 1, column"), std::string::npos);
    const std::string copy = "node 9 copy piece 0 0 reads 0+0:8 writes 1+0:8\n";
    EXPECT_NO_THROW((void)Graph::from_text(good + copy));
    for (const auto& [from, to] : {std::pair("reads 0+0:8", "reads"), {"writes 1+0:8", "writes"}}) {
        std::string text = good + copy;
        text.replace(text.rfind(from), std::string_view(from).size(), to);
        EXPECT_THROW((void)Graph::from_text(text), InvalidArgument) << text;
    }
    EXPECT_NE(refused("node 1", "node 9 copy piece 0 0 reads 0+0:8 writes 1+0:4\nnode 1").find("as many bytes"),
              std::string::npos);
    EXPECT_NE(refused("node 1", "node 9 send group 0 int32 sum peer 1 tag 0 piece 0 0 reads writes\nnode 1")
                  .find("the range that send reads or writes"),
              std::string::npos);
    EXPECT_NE(refused("writes 1+0:32\nnode 1", "writes 1+0:32 x\nnode 1").find("the end of the line"),
              std::string::npos);
}

TEST(Graphs, predict_what_runs_beside_what) {
    Program p(0, 2);
    const Range x = p.buffer(1000), y = p.buffer(8);
    const int sum = p.all_reduce(x);  // 10 us and 10 us for its bytes
    p.start(sum);
    p.compute({}, {y}, 15);
    p.wait(sum);
    EXPECT_DOUBLE_EQ(p.graph().predicted_us(), 20);
    p.compute({}, {y}, 15);
    EXPECT_DOUBLE_EQ(p.graph().predicted_us(), 35);
}

}  // namespace
}  // namespace tutti::graph
