// Dead values: a compute step or copy whose every result is overwritten, or temporary, before anybody reads it is left
// out, and so are those that worked for it alone. Communication stays: other ranks count on it.
#include "core/interval_map.hpp"
#include "graph/passes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::graph {
namespace {

struct Live {
    Live from(std::uint64_t /*bytes*/) const { return {}; }
};

/// The bytes whose present values somebody reads later.
class LiveBytes {
 public:
    explicit LiveBytes(const Graph& graph) : maps_(graph.buffers.size()) {
        for (std::size_t i = 0; i < maps_.size(); ++i) maps_[i].set(0, graph.buffers[i], {});
        for (const Range& r : graph.temporaries) drop(r);
    }
    void add(const Range& r) { maps_[r.buffer].set(r.offset, r.end(), {}); }
    void drop(const Range& r) { maps_[r.buffer].erase(r.offset, r.end()); }
    bool any(const Range& r) const {
        bool found = false;
        maps_[r.buffer].for_each(r.offset, r.end(), [&](auto, auto, auto) { found = true; });
        return found;
    }

 private:
    std::vector<IntervalMap<Live>> maps_;
};

}  // namespace

Result drop_dead_values(const Graph& graph, const Settings& /*settings*/) {
    LiveBytes live(graph);
    Result result{graph, {}};
    std::vector<Node> kept;
    for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
        const std::vector<Range> writes = writes_of(*node);
        const bool may_go = node->kind == Kind::compute || node->kind == Kind::copy;
        const bool needed = writes.empty() || std::ranges::any_of(writes, [&](const Range& r) { return live.any(r); });
        if (may_go && !needed) {
            result.text.push_back(fmt::format("left out {}: nobody reads its results", describe(graph, *node)));
            continue;
        }
        for (const Range& r : writes) live.drop(r);
        for (const Range& r : reads_of(*node)) live.add(r);
        kept.push_back(*node);
    }
    std::ranges::reverse(kept);
    std::ranges::reverse(result.text);
    result.graph.nodes = std::move(kept);
    return result;
}

}  // namespace tutti::graph
