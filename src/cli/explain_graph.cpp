#include "cli/explain_graph.hpp"

#include "cli/line_diff.hpp"
#include "cli/manual/page.hpp"
#include "cli/output_file.hpp"
#include "core/assert.hpp"
#include "core/text.hpp"
#include "core/whole_file.hpp"
#include "graph/picture.hpp"
#include "graph/text.hpp"
#include "graph/value.hpp"
#include "record/dump.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

namespace tutti::cli {
namespace {

using graph::Graph;
using graph::GroupInfo;
using graph::Node;

constexpr std::size_t diff_lines_max = 40;  // of one pass
constexpr std::size_t file_bytes_max = std::size_t{256} << 20U;

struct RankGraph {
    int rank;
    Graph graph;
};

// Names and sentences come from a file.
template <class... Arguments>
void show(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    std::fputs(visible(fmt::format(format, std::forward<Arguments>(arguments)...)).c_str(), stdout);
}

std::string text_of(const std::string& file) {
    try {
        return whole_file(file, file_bytes_max);
    } catch (const InvalidArgument& error) {
        throw InvalidArgument(fmt::format(
            "--graph {}: expected a file with graphs, as Graph::to_text() writes them: it {}", file, error.what()));
    }
}

std::vector<RankGraph> read(const std::vector<std::string>& files) {
    std::vector<RankGraph> all;
    for (const std::string& file : files) {
        for (Graph& g : graph::read_graphs(text_of(file), file)) {
            const int rank = graph::rank_in_world(g, static_cast<int>(all.size()));
            all.push_back({rank, std::move(g)});
        }
    }
    std::ranges::stable_sort(all, {}, &RankGraph::rank);
    return all;
}

void print_group(const GroupInfo& g) {
    std::vector<int> own(g.ranks.size());
    std::iota(own.begin(), own.end(), 0);
    show("group \"{}\": {}; a collective takes {:.1f} us, and {:.3g} us more for each MB\n", g.name,
         record::Members(g.ranks).list_of(own), g.latency_us, g.us_per_byte * 1e6);
}

void print_nodes(const RankGraph& one) {
    const Graph& g = one.graph;
    for (const GroupInfo& group : g.groups) print_group(group);
    show("rank {}: {} nodes on {} buffers of {} bytes, predicted to take {:.1f} us\n", one.rank, g.nodes.size(),
         g.buffers.size(), std::accumulate(g.buffers.begin(), g.buffers.end(), std::uint64_t{0}), g.predicted_us());
    if (!g.nodes.empty()) show("  {:>6} {:>10} {:>10}\n", "node", "at us", "takes us");
    for (const graph::Bar& bar : graph::timeline(g)) {
        TUTTI_ASSERT(bar.node >= 0 && static_cast<std::size_t>(bar.node) < g.nodes.size() &&
                     bar.end_us >= bar.begin_us);
        const Node& n = g.nodes[static_cast<std::size_t>(bar.node)];
        show("  {:>6} {:>10.1f} {:>10.1f}  {}{}\n", n.id, bar.begin_us, bar.end_us - bar.begin_us,
             n.asynchronous ? "start of " : "", graph::describe(g, n));
    }
}

/// At most `columns` letters; the bytes of one stay together.
std::string cut(const std::string& line, std::size_t columns) {
    TUTTI_ASSERT(columns > 0);
    std::size_t letters = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
        if ((static_cast<unsigned char>(line[i]) & 0xc0U) == 0x80) continue;
        if (++letters > columns) return line.substr(0, i) + "…";
    }
    return line;
}

void print_diff(const Graph& before, const Graph& after) {
    const std::vector<std::string> lines = line_diff(before.to_text(), after.to_text());
    const std::size_t width = manual::width_of_output() - 5;
    for (std::size_t i = 0; i < std::min(lines.size(), diff_lines_max); ++i) show("    {}\n", cut(lines[i], width));
    if (lines.size() > diff_lines_max) show("    and {} lines more\n", lines.size() - diff_lines_max);
}

/// What the passes made of the graph.
void print_changes(const Graph& captured, const graph::Optimised& optimised) {
    const Graph* before = &captured;
    for (const graph::Change& change : optimised.changes) {
        show("\n{}: {:.1f} us -> {:.1f} us\n", change.pass, change.before_us, change.after_us);
        if (change.text.empty()) show("  nothing to change\n");
        for (const std::string& sentence : change.text) show("  {}\n", sentence);
        print_diff(*before, change.after);
        before = &change.after;
    }
    show("\na replay: {:.1f} us before, {:.1f} us after\n", captured.predicted_us(), optimised.graph.predicted_us());
}

}  // namespace

int explain_graphs(const GraphQuestion& question) {
    const std::vector<RankGraph> all = read(question.files);
    const auto shown = std::ranges::find(all, question.rank, &RankGraph::rank);
    if (shown == all.end()) {
        std::vector<int> ranks;
        for (const RankGraph& one : all) ranks.push_back(one.rank);
        throw InvalidArgument(fmt::format("--rank {}: expected a rank with a graph: {}", question.rank,
                                          record::Members().list_of(ranks)));
    }
    print_nodes(*shown);
    std::vector<Graph> graphs;
    for (const RankGraph& one : all) graphs.push_back(one.graph);
    if (const graph::Proof proof = graph::prove(graphs); !proof) {
        show("\nthe proof fails: these graphs cannot run\n");
        for (const std::string& fault : proof.faults) show("  {}\n", fault);
        return 1;
    }
    show("\nthe proof holds for {} rank{}: collectives match, every message is received, nobody waits forever\n",
         all.size(), all.size() == 1 ? "" : "s");
    const std::string of_rank = all.size() > 1 ? fmt::format("rank {}, ", shown->rank) : "";
    if (std::ranges::any_of(graphs, &Graph::changed)) {
        show("passes have changed these graphs already; none runs again\n");
        const std::vector<graph::Panel> panels{{of_rank + "as it is", shown->graph}};
        if (!question.svg.empty()) write_output("--svg", question.svg, graph::picture_of(panels));
        return 0;
    }
    const std::vector<graph::Optimised> optimised = graph::optimise(graphs, {.stages = true});
    TUTTI_ASSERT(optimised.size() == graphs.size());
    const graph::Optimised& result = optimised[static_cast<std::size_t>(shown - all.begin())];
    print_changes(shown->graph, result);
    const std::vector<graph::Panel> panels{{of_rank + "before", shown->graph}, {of_rank + "after", result.graph}};
    if (!question.svg.empty()) write_output("--svg", question.svg, graph::picture_of(panels));
    return 0;
}

}  // namespace tutti::cli
