// optimise(): the passes in their order, over the graphs of all ranks, until all ranks' communication agrees; then the
// proof, by which a pass may have to do less. And the same for one rank's graph, after an exchange.
//
// Everything is decided from the graphs of all ranks that share groups, directly or by way of other ranks, so all of
// them decide alike; ranks that share none have no part in it.
#include "core/assert.hpp"
#include "graph/passes.hpp"

#include <tutti/object_collectives.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace tutti::graph {
namespace {

struct Pass {
    std::string name;
    Result (*run)(const Graph&, const Settings&);
    bool moves_calls = false;  ///< past those of other groups, unless they stay in place
    /// What the pass may do, and, where that is not all, the fault of its result otherwise.
    enum class May { everything, stay_in_place, nothing } may = May::everything;
    std::string fault{};

    /// Less than now, because of the fault.
    void restrict(std::string why) {
        TUTTI_ASSERT(may != May::nothing && !why.empty());
        may = moves_calls && may == May::everything ? May::stay_in_place : May::nothing;
        fault = std::move(why);
    }
    Result on(const Graph& graph, Settings settings) const {
        if (may == May::nothing)
            return {graph, {fmt::format("left out, because its result would not prove: {}", fault)}};
        settings.in_place = may == May::stay_in_place;
        Result result = run(graph, settings);
        if (settings.in_place)
            result.text.push_back(
                fmt::format("no call moved past those of other groups and messages, because otherwise: {}", fault));
        return result;
    }
};

std::vector<Pass> passes_of(const OptimiseOptions& o) {
    std::vector<Pass> passes;
    if (o.algebra) passes.push_back({"algebra", &apply_algebra, true});
    if (o.dead_values) passes.push_back({"dead values", &drop_dead_values});
    if (o.order == Order::free && o.buckets) passes.push_back({"buckets", &make_buckets, true});
    if (o.order == Order::free && o.split && o.overlap) passes.push_back({"split", &split_collectives});
    if (o.order == Order::free && o.overlap) passes.push_back({"overlap", &overlap_collectives});
    if (o.memory) passes.push_back({"memory", &reuse_memory});
    return passes;
}

/// `stages`: the graph after each pass stays with its change.
Optimised run_passes(const Graph& graph, const std::vector<Pass>& passes, const Settings& settings, bool stages) {
    Optimised result{graph, {}};
    for (const Pass& pass : passes) {
        const double before_us = result.graph.predicted_us();
        const std::uint64_t before_bytes = result.graph.peak_bytes();
        Result after = pass.on(result.graph, settings);
        result.graph = std::move(after.graph);
        mark_changed_groups(graph, result.graph);
        result.changes.push_back({pass.name,
                                  std::move(after.text),
                                  before_us,
                                  result.graph.predicted_us(),
                                  before_bytes,
                                  result.graph.peak_bytes(),
                                  {}});
        if (stages) result.changes.back().after = result.graph;
    }
    return result;
}

/// What a rank's collective is made of, as far as all ranks must have it alike.
struct Made {
    Kind kind;
    std::vector<int> pieces;  ///< ordinals
    std::uint64_t bytes;      ///< of one that may be a chunk
    friend bool operator==(const Made&, const Made&) = default;
};
std::vector<Made> collectives_of(const Graph& graph, const std::string& group, const Settings& settings) {
    std::vector<Made> list;
    for (const Node& n : graph.nodes) {
        if (!is_collective(n.kind) || graph.groups[static_cast<std::size_t>(n.group)].name != group) continue;
        Made& one = list.emplace_back(Made{n.kind, {}, may_run_in_chunks(n.kind) && !n.opaque ? bytes_of(n) : 0});
        for (const Piece& p : n.pieces) one.pieces.push_back(settings.ordinals[static_cast<std::size_t>(p.call)]);
    }
    return list;
}

std::size_t chunks_in(const std::vector<Made>& list, int ordinal) {
    TUTTI_ASSERT(ordinal >= 0);
    return static_cast<std::size_t>(
        std::ranges::count_if(list, [&](const Made& m) { return m.pieces == std::vector{ordinal}; }));
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

// The first collectives that differ between two ranks that share a group are cut into as few chunks as on the rank with
// the fewest, or join `keep`; false: none do. Each turn has fewer chunks or keeps more, so there is a last one.
bool leave_alone_what_differs(const std::vector<Optimised>& results, std::vector<Settings>& settings) {
    TUTTI_ASSERT(results.size() == settings.size());
    std::map<std::string, std::size_t> first_of;  // the first rank of each group
    std::set<Ordinal> differing;
    std::map<Ordinal, std::size_t> fewest;
    for (std::size_t r = 0; r < results.size(); ++r) {
        for (const GroupInfo& group : results[r].graph.groups) {
            const auto [found, is_first] = first_of.try_emplace(group.name, r);
            if (is_first) continue;
            const Difference difference = first_difference(results[found->second].graph, results[r].graph, group.name,
                                                           settings[found->second], settings[r]);
            if (difference.ordinals.empty()) continue;
            const Ordinal first(group.name, difference.ordinals.front());
            const auto limit = settings.front().most_chunks.find(first);
            const bool is_new = limit == settings.front().most_chunks.end() || difference.fewest_chunks < limit->second;
            if (difference.fewest_chunks > 0 && is_new) {
                const auto [at, added] = fewest.try_emplace(first, difference.fewest_chunks);
                if (!added) at->second = std::min(at->second, difference.fewest_chunks);
                continue;
            }
            for (const int ordinal : difference.ordinals) differing.insert({group.name, ordinal});
        }
    }
    if (differing.empty() && fewest.empty()) return false;
    for (Settings& s : settings) {
        s.keep.insert(differing.begin(), differing.end());
        for (const auto& [ordinal, chunks] : fewest) s.most_chunks[ordinal] = chunks;
    }
    return true;
}

/// Places of the graphs whose ranks share groups with each other, directly or by way of others.
std::vector<std::vector<std::size_t>> parts_of(const std::vector<Graph>& graphs) {
    const std::vector<int> numbers = ranks_in_world(graphs);
    std::map<int, int> part_of;  // by rank of the world; a part has the number of one of its ranks
    for (const int rank : numbers) part_of[rank] = rank;
    for (const Graph& g : graphs) {
        for (const GroupInfo& group : g.groups) {
            std::set<int> joined;
            for (const int rank : group.ranks) joined.insert(part_of.at(rank));
            if (joined.size() == 1) continue;
            for (auto& [rank, part] : part_of) part = joined.contains(part) ? *joined.begin() : part;
        }
    }
    std::map<int, std::vector<std::size_t>> parts;
    for (std::size_t r = 0; r < graphs.size(); ++r) parts[part_of.at(numbers[r])].push_back(r);
    std::vector<std::vector<std::size_t>> list;
    for (auto& [part, places] : parts) list.push_back(std::move(places));
    return list;
}

/// The passes over the graphs of ranks that share groups.
class Optimising {
 public:
    Optimising(std::vector<Graph> graphs, const OptimiseOptions& options)
        : graphs_(std::move(graphs)), options_(options), passes_(passes_of(options)) {}

    /// A pass whose result does not prove does less, or nothing, and all run again; without passes every graph is
    /// proved.
    std::vector<Optimised> run() {
        for (;;) {
            run_until_alike();
            const Proof proof = proof_of([](const Optimised& o) -> const Graph& { return o.graph; });
            if (proof) return std::move(results_);
            restrict_first_fault(proof);
        }
    }

 private:
    void run_until_alike() {
        settings_.clear();
        for (const Graph& g : graphs_) settings_.push_back({options_, ordinals(g), {}});
        do run_passes_of_all(options_.stages);
        while (leave_alone_what_differs(results_, settings_));
    }
    void run_passes_of_all(bool stages) {
        TUTTI_ASSERT(settings_.size() == graphs_.size());
        results_.clear();
        for (std::size_t r = 0; r < graphs_.size(); ++r)
            results_.push_back(run_passes(graphs_[r], passes_, settings_[r], stages));
    }
    template <class GraphOf>
    Proof proof_of(GraphOf&& graph_of) const {
        std::vector<Graph> made;
        for (const Optimised& o : results_) made.push_back(graph_of(o));
        return prove(graphs_, made);
    }

    /// `last`: the proof of what all passes together have made.
    void restrict_first_fault(const Proof& last) {
        TUTTI_ASSERT(!last.faults.empty());
        TUTTI_ASSERT(results_.size() == graphs_.size());
        if (!options_.stages) run_passes_of_all(true);
        for (std::size_t i = 0; i < passes_.size(); ++i) {
            const Proof proof = proof_of([i](const Optimised& o) -> const Graph& { return o.changes[i].after; });
            if (!proof && passes_[i].may != Pass::May::nothing) return passes_[i].restrict(proof.faults.front());
        }
        throw InternalError("optimise: no pass has made what does not prove: " + last.faults.front());
    }

    std::vector<Graph> graphs_;
    const OptimiseOptions& options_;
    std::vector<Pass> passes_;
    std::vector<Settings> settings_;  ///< by rank
    std::vector<Optimised> results_;  ///< by rank
};

}  // namespace

void mark_changed_groups(const Graph& captured, Graph& made) {
    TUTTI_ASSERT(made.groups.size() == captured.groups.size());
    for (std::size_t g = 0; g < made.groups.size(); ++g)
        made.groups[g].changed = made.collectives_hash(g) != captured.collectives_hash(g);
}

Difference first_difference(const Graph& a, const Graph& b, const std::string& group, const Settings& of_a,
                            const Settings& of_b) {
    const std::vector<Made> x = collectives_of(a, group, of_a), y = collectives_of(b, group, of_b);
    std::size_t i = 0;
    while (i < x.size() && i < y.size() && x[i] == y[i]) ++i;
    Difference found;
    for (const std::vector<Made>* list : {&x, &y}) {
        if (i >= list->size()) continue;
        const std::vector<int>& pieces = (*list)[i].pieces;
        found.ordinals.insert(found.ordinals.end(), pieces.begin(), pieces.end());
    }
    if (found.ordinals.empty()) return found;
    const int first = found.ordinals.front();
    const bool one_call = std::ranges::all_of(found.ordinals, [&](int ordinal) { return ordinal == first; });
    const std::size_t chunks_x = chunks_in(x, first), chunks_y = chunks_in(y, first);
    if (one_call && chunks_x != chunks_y) found.fewest_chunks = std::min(chunks_x, chunks_y);
    return found;
}

std::vector<Optimised> optimise(const std::vector<Graph>& graphs, const OptimiseOptions& options) {
    check(graphs);
    std::vector<Optimised> results(graphs.size());
    for (const std::vector<std::size_t>& part : parts_of(graphs)) {
        std::vector<Graph> own;
        for (const std::size_t r : part) own.push_back(graphs[r]);
        std::vector<Optimised> made = Optimising(std::move(own), options).run();
        TUTTI_ASSERT(made.size() == part.size());
        for (std::size_t i = 0; i < part.size(); ++i) results[part[i]] = std::move(made[i]);
    }
    return results;
}

Optimised optimise(const Graph& graph, const OptimiseOptions& options) {
    if (options.alike) {
        const std::vector<Graph> graphs = as_on_all_ranks(graph);
        return std::move(optimise(graphs, options)[static_cast<std::size_t>(graph.groups.front().rank)]);
    }
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
        text += fmt::format("{}: {:.1f} us -> {:.1f} us", c.pass, c.before_us, c.after_us);
        if (c.before_bytes != c.after_bytes) text += fmt::format(", {} -> {} bytes", c.before_bytes, c.after_bytes);
        text += '\n';
        for (const std::string& line : c.text) text += fmt::format("  {}\n", line);
        if (c.text.empty()) text += "  nothing to change\n";
    }
    return text;
}

}  // namespace tutti::graph
