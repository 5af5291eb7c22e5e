#include "graph/liveness.hpp"

#include "core/assert.hpp"

namespace tutti::graph {

LiveBytes::LiveBytes(const Graph& graph) : maps_(graph.buffers.size()) {
    for (std::size_t i = 0; i < maps_.size(); ++i) maps_[i].set(0, graph.buffers[i], {});
    for (const Range& r : graph.temporaries) {
        if (r.bytes > 0) drop(r);
    }
    for (const Node& n : graph.nodes) {
        if (n.asynchronous) asynchronous_[n.id] = &n;
    }
}

void LiveBytes::step_back_over(const Node& node) {
    if (node.kind == Kind::wait) {
        const auto begun = asynchronous_.find(node.of);
        if (begun == asynchronous_.end()) return;
        for (const Range& r : reads_of(*begun->second)) add(r);
        for (const Range& r : writes_of(*begun->second)) add(r);
        return;
    }
    for (const Range& r : writes_of(node)) drop(r);
    for (const Range& r : reads_of(node)) add(r);
}

bool LiveBytes::any(const Range& r) const {
    TUTTI_ASSERT(r.bytes == 0 || r.buffer < maps_.size());
    bool found = false;
    maps_[r.buffer].for_each(r.offset, r.end(), [&](auto, auto, auto) { found = true; });
    return found;
}

}  // namespace tutti::graph
