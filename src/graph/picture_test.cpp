// The picture of a graph: its times are the predicted ones, and what it shows is well-formed.
#include "graph/picture.hpp"

#include "graph/test_graphs.hpp"
#include "graph/text.hpp"
#include "graph/value.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tutti::graph::test {
namespace {

// Two layers, whose gradients travel while the next one's is computed.
void overlapped(Program& p) {
    const Range x = p.buffer(4000), y = p.buffer(4000), z = p.buffer(16);
    p.compute({}, {x}, 100);
    const int first = p.all_reduce(x);
    p.start(first);
    p.compute({}, {y}, 30);
    p.all_reduce(y);
    p.compute({y}, {z}, 5);
    p.wait(first);
    p.compute({x, z}, {z}, 7);
}

std::size_t count(std::string_view text, std::string_view part) {
    std::size_t n = 0;
    for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++n;
    return n;
}

TEST(Pictures, last_as_long_as_the_graph_is_predicted_to) {
    for (const Graph& g : graphs_of(2, overlapped)) {
        const std::vector<Bar> bars = timeline(g);
        ASSERT_EQ(bars.size(), g.nodes.size());
        double end = 0;
        for (const Bar& bar : bars) end = std::max(end, bar.end_us);
        EXPECT_DOUBLE_EQ(end, g.predicted_us());
        EXPECT_DOUBLE_EQ(bars[1].begin_us, 100);  // when its input is there
        EXPECT_DOUBLE_EQ(bars[3].begin_us, 150);  // what moves the data was busy
        EXPECT_DOUBLE_EQ(bars[5].end_us - bars[5].begin_us, 0);
        EXPECT_TRUE(bars[1].moves_data);
        EXPECT_FALSE(bars[5].moves_data);
    }
}

TEST(Pictures, show_each_node_and_each_dependency) {
    Graph before = graphs_of(2, overlapped).front();
    before.nodes.front().name = "a<b & \"c\"";
    Graph after = before;
    after.nodes.resize(1);
    const std::vector<Panel> panels{{"before", before}, {"after", after}};
    const std::string svg = picture_of(panels);
    EXPECT_EQ(count(svg, "<title>"), before.nodes.size() + 1);
    EXPECT_EQ(count(svg, "<path class=\"arrow"), before.edges().size());
    EXPECT_NE(svg.find("before: 7 nodes, 212.0 µs"), std::string::npos) << svg;
    EXPECT_NE(svg.find("after: 1 node, 100.0 µs"), std::string::npos) << svg;
    EXPECT_NE(svg.find("a&lt;b &amp; &quot;c&quot;"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("a<b"), std::string::npos);
    EXPECT_EQ(count(svg, "<g>"), count(svg, "</g>"));
}

TEST(Pictures, of_nothing_and_of_very_much_are_pictures_too) {
    const Graph nothing;
    const Graph much = graphs_of(2, [](Program& p) {
                           const Range x = p.buffer(16);
                           for (int i = 0; i < 1000; ++i) p.compute({x}, {x}, 0);
                       }).front();
    const std::vector<Panel> panels{{"before", much}, {"after", nothing}};
    const std::string svg = picture_of(panels);
    EXPECT_NE(svg.find("dependencies without arrows"), std::string::npos);
    EXPECT_EQ(count(svg, "nan"), 0U);
    EXPECT_EQ(count(svg, "inf"), 0U);
}

TEST(Texts, of_several_graphs_are_read_one_by_one) {
    const std::vector<Graph> graphs = graphs_of(2, overlapped);
    const std::string text = graphs[0].to_text() + "\n" + graphs[1].to_text();
    EXPECT_EQ(read_graphs(text, "file"), graphs);
    const auto message = [](const std::string& bad) {
        try {
            (void)read_graphs(bad, "file");
        } catch (const InvalidArgument& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const auto lines = std::ranges::count(graphs[0].to_text(), '\n');
    EXPECT_EQ(message(graphs[0].to_text() + "tutti graph 2\n"),
              "file: line " + std::to_string(lines + 1) + ", column 12: expected \"1\"");
    EXPECT_EQ(message(""), "file: it is empty: expected the line \"tutti graph 1\"");
    EXPECT_NE(message("tutti graph 1\nnode 0 compute \"x\" cost nan piece 0 0 reads writes\n").find("from 0 to 1e+15"),
              std::string::npos);
}

}  // namespace
}  // namespace tutti::graph::test
