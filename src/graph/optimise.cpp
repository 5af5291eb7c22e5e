// optimise(): the passes in their order, over the graphs of all ranks, until all ranks' communication agrees; then the
// proof. And the same for one rank's graph, after an exchange.
#include "graph/passes.hpp"

#include <tutti/object_collectives.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace tutti::graph {
namespace {

struct Pass {
    const char* name;
    Result (*run)(const Graph&, const Settings&);
};

std::vector<Pass> passes_of(const OptimiseOptions& o) {
    std::vector<Pass> passes;
    if (o.algebra) passes.push_back({"algebra", &apply_algebra});
    if (o.dead_values) passes.push_back({"dead values", &drop_dead_values});
    if (o.order == Order::program) return passes;
    if (o.buckets) passes.push_back({"buckets", &make_buckets});
    if (o.overlap) passes.push_back({"overlap", &overlap_collectives});
    return passes;
}

Optimised run_passes(const Graph& graph, const Settings& settings) {
    Optimised result{graph, {}};
    for (const Pass& pass : passes_of(settings.options)) {
        const double before_us = result.graph.predicted_us();
        Result after = pass.run(result.graph, settings);
        result.graph = std::move(after.graph);
        result.changes.push_back({pass.name, std::move(after.text), before_us, result.graph.predicted_us()});
        if (settings.options.stages) result.changes.back().after = result.graph;
    }
    return result;
}

/// What a rank's collective is made of, as far as all ranks must have it alike.
struct Made {
    Kind kind;
    std::vector<int> pieces;  ///< ordinals
    friend bool operator==(const Made&, const Made&) = default;
};
std::vector<Made> collectives_of(const Graph& graph, const std::string& group, const Settings& settings) {
    std::vector<Made> list;
    for (const Node& n : graph.nodes) {
        if (!is_collective(n.kind) || graph.groups[static_cast<std::size_t>(n.group)].name != group) continue;
        Made& one = list.emplace_back(Made{n.kind, {}});
        for (const Piece& p : n.pieces) one.pieces.push_back(settings.ordinals[static_cast<std::size_t>(p.call)]);
    }
    return list;
}

void check(const std::vector<Graph>& graphs) {
    for (const Graph& g : graphs) {
        for (const Node& n : g.nodes) {
            if (is_collective(n.kind) && std::ranges::any_of(n.pieces, [](const Piece& p) { return p.call < 0; }))
                throw InvalidArgument(
                    fmt::format("optimise: {} has no captured call: expected graphs of capture()", describe(g, n)));
        }
    }
    if (const Proof proof = prove(graphs); !proof)
        throw InvalidArgument("optimise: the captured graphs cannot run: " + proof.faults.front());
}

// The first collectives that differ between two ranks that share a group join `keep`; false: none do.
bool leave_alone_what_differs(const std::vector<Optimised>& results, std::vector<Settings>& settings) {
    std::map<std::string, std::size_t> first_of;  // the first rank of each group
    std::set<Ordinal> differing;
    for (std::size_t r = 0; r < results.size(); ++r) {
        for (const GroupInfo& group : results[r].graph.groups) {
            const auto [found, is_first] = first_of.try_emplace(group.name, r);
            if (is_first) continue;
            for (const int ordinal : first_difference(results[found->second].graph, results[r].graph, group.name,
                                                      settings[found->second], settings[r]))
                differing.insert({group.name, ordinal});
        }
    }
    if (differing.empty()) return false;
    for (Settings& s : settings) s.keep.insert(differing.begin(), differing.end());
    return true;
}

}  // namespace

std::vector<int> first_difference(const Graph& a, const Graph& b, const std::string& group, const Settings& of_a,
                                  const Settings& of_b) {
    const std::vector<Made> x = collectives_of(a, group, of_a), y = collectives_of(b, group, of_b);
    std::vector<int> ordinals;
    const auto add = [&](const std::vector<Made>& list, std::size_t i) {
        if (i < list.size()) ordinals.insert(ordinals.end(), list[i].pieces.begin(), list[i].pieces.end());
    };
    for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i) {
        if (i < x.size() && i < y.size() && x[i] == y[i]) continue;
        add(x, i);
        add(y, i);
        break;
    }
    return ordinals;
}

std::vector<Optimised> optimise(const std::vector<Graph>& graphs, const OptimiseOptions& options) {
    check(graphs);
    std::vector<Settings> settings;
    for (const Graph& g : graphs) settings.push_back({options, ordinals(g), {}});
    std::vector<Optimised> results;
    const auto run = [&] {
        do {
            results.clear();
            for (std::size_t r = 0; r < graphs.size(); ++r) results.push_back(run_passes(graphs[r], settings[r]));
        } while (leave_alone_what_differs(results, settings));
        std::vector<Graph> after;
        for (const Optimised& r : results) after.push_back(r.graph);
        return prove(graphs, after);
    };
    Proof proof = run();
    if (!proof && options.algebra) {  // values that are equal on all ranks for one rank need not be for another
        for (Settings& s : settings) s.options.algebra = false;
        proof = run();
    }
    if (!proof) throw InternalError("optimise: the passes' result does not prove: " + proof.faults.front());
    return results;
}

Optimised optimise(const Graph& graph, const OptimiseOptions& options) {
    const ProcessGroup group = options.group ? options.group : default_group();
    const std::vector<std::string> texts = all_gather_object(graph.to_text(), CollectiveOptions{.group = group});
    std::vector<Graph> graphs;
    for (const std::string& text : texts) graphs.push_back(Graph::from_text(text));
    Optimised mine = std::move(optimise(graphs, options)[static_cast<std::size_t>(group.rank())]);
    mine.graph.calls = graph.calls;
    return mine;
}

std::string Optimised::to_text() const {
    std::string text;
    for (const Change& c : changes) {
        text += fmt::format("{}: {:.1f} us -> {:.1f} us\n", c.pass, c.before_us, c.after_us);
        for (const std::string& line : c.text) text += fmt::format("  {}\n", line);
        if (c.text.empty()) text += "  nothing to change\n";
    }
    return text;
}

}  // namespace tutti::graph
