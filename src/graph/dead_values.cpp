// Dead values: a compute step or copy whose every result is overwritten, or temporary, before anybody reads it is left
// out, and so are those that worked for it alone. Communication stays: other ranks count on it.
#include "core/assert.hpp"
#include "graph/liveness.hpp"
#include "graph/passes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::graph {

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
        live.step_back_over(*node);
        kept.push_back(*node);
    }
    TUTTI_ASSERT(kept.size() + result.text.size() == graph.nodes.size());
    std::ranges::reverse(kept);
    std::ranges::reverse(result.text);
    result.graph.nodes = std::move(kept);
    return result;
}

}  // namespace tutti::graph
