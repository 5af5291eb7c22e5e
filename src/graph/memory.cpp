// Memory: temporaries whose values are not needed at the same time share the bytes of one arena.
//
// A buffer takes part if all of it is temporary, if the graph needs none of the bytes that it holds at first, and if
// every node that uses it works elsewhere too. Between its last read and the next write its bytes serve others; so one
// buffer may have several places in turn. An asynchronous call has its buffers until its wait.
#include "core/assert.hpp"
#include "graph/liveness.hpp"
#include "graph/packing.hpp"
#include "graph/passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tutti::graph {
namespace {

/// A stretch of the order of nodes in which a buffer's values matter.
struct Value {
    std::uint32_t buffer;
    Lifetime lifetime;
};

class Reuse {
 public:
    explicit Reuse(const Graph& graph) : graph_(graph), joins_(graph.buffers.size()), last_(graph.buffers.size(), -1) {
        find_temporaries();
        for (const Node& n : graph_.nodes) {
            if (n.asynchronous) asynchronous_[n.id] = &n;
            if (n.fixed || n.opaque) for_each_buffer(n, [&](std::uint32_t b) { joins_[b] = false; });
        }
    }

    Result run() {
        Result result{graph_, {}};
        if (graph_.arena >= 0) return result;  // it is done already
        find_values();
        std::vector<Lifetime> lifetimes;
        for (const Value& v : values_) lifetimes.push_back(v.lifetime);
        const Packing packing = pack(lifetimes);
        TUTTI_ASSERT(packing.offsets.size() == values_.size());
        std::uint64_t apart = 0;
        int buffers = 0;
        for (std::size_t b = 0; b < joins_.size(); ++b) {
            if (last_[b] < 0) continue;
            apart += graph_.buffers[b];
            ++buffers;
        }
        if (packing.bytes >= apart) return result;
        const auto arena = static_cast<std::uint32_t>(graph_.buffers.size());
        result.graph.buffers.push_back(packing.bytes);
        result.graph.temporaries.push_back({arena, 0, packing.bytes});
        result.graph.arena = static_cast<int>(arena);
        move_nodes(result.graph, packing.offsets);
        result.text.push_back(fmt::format("{} temporaries share {} bytes instead of {}; {} are needed at once at most",
                                          buffers, packing.bytes, apart, most_alive(lifetimes)));
        return result;
    }

 private:
    // All of whose bytes are.
    void find_temporaries() {
        std::vector<Range> parts = graph_.temporaries;
        std::ranges::sort(parts, {}, [](const Range& r) { return std::pair(r.buffer, r.offset); });
        std::vector<std::uint64_t> ends(joins_.size());
        for (const Range& r : parts) {
            if (r.bytes > 0 && r.offset <= ends[r.buffer]) ends[r.buffer] = std::max(ends[r.buffer], r.end());
        }
        for (std::size_t b = 0; b < joins_.size(); ++b) joins_[b] = ends[b] > 0 && ends[b] == graph_.buffers[b];
    }

    template <class F>
    void for_each_buffer(const Node& node, F&& f) const {
        const auto begun = node.kind == Kind::wait ? asynchronous_.find(node.of) : asynchronous_.end();
        const Node& uses = begun == asynchronous_.end() ? node : *begun->second;
        std::vector<std::uint32_t> buffers;
        for (const Range& r : reads_of(uses)) buffers.push_back(r.buffer);
        for (const Range& r : writes_of(uses)) buffers.push_back(r.buffer);
        std::ranges::sort(buffers);
        buffers.erase(std::unique(buffers.begin(), buffers.end()), buffers.end());
        for (const std::uint32_t b : buffers) f(b);
    }

    void find_values() {
        // needed_[i]: the buffers of node i of which it, or a later node, needs what they hold before node i.
        std::vector<std::vector<std::uint32_t>> needed(graph_.nodes.size());
        LiveBytes live(graph_);
        for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
            live.step_back_over(graph_.nodes[i]);
            for_each_buffer(graph_.nodes[i], [&](std::uint32_t b) {
                if (joins_[b] && live.any({b, 0, graph_.buffers[b]})) needed[i].push_back(b);
            });
        }
        for (std::uint32_t b = 0; b < joins_.size(); ++b) joins_[b] = joins_[b] && !live.any({b, 0, graph_.buffers[b]});
        of_node_.resize(graph_.nodes.size());
        for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
            for_each_buffer(graph_.nodes[i], [&](std::uint32_t b) {
                if (!joins_[b]) return;
                if (!std::ranges::binary_search(needed[i], b)) {
                    last_[b] = static_cast<int>(values_.size());
                    values_.push_back({b, {static_cast<int>(i), static_cast<int>(i), graph_.buffers[b]}});
                }
                TUTTI_ASSERT(last_[b] >= 0 && static_cast<std::size_t>(last_[b]) < values_.size());
                values_[static_cast<std::size_t>(last_[b])].lifetime.last = static_cast<int>(i);
                of_node_[i].emplace_back(b, last_[b]);
            });
        }
    }

    void move_nodes(Graph& graph, const std::vector<std::uint64_t>& offsets) const {
        TUTTI_ASSERT(graph.arena >= 0 && offsets.size() == values_.size());
        for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
            const auto move = [&](Range& r) {
                if (r.bytes == 0) return;
                const auto found = std::ranges::find(of_node_[i], r.buffer, &std::pair<std::uint32_t, int>::first);
                if (found == of_node_[i].end()) return;
                TUTTI_ASSERT(static_cast<std::size_t>(found->second) < offsets.size());
                r.offset += offsets[static_cast<std::size_t>(found->second)];
                r.buffer = static_cast<std::uint32_t>(graph.arena);
                TUTTI_ASSERT(r.end() <= graph.buffers[r.buffer]);
            };
            for (Piece& p : graph.nodes[i].pieces) {
                std::ranges::for_each(p.reads, move);
                std::ranges::for_each(p.writes, move);
            }
        }
    }

    const Graph& graph_;
    std::map<int, const Node*> asynchronous_;  ///< by id
    std::vector<bool> joins_;                  ///< by buffer
    std::vector<int> last_;                    ///< by buffer, the latest of its values; -1: it has none
    std::vector<Value> values_;
    std::vector<std::vector<std::pair<std::uint32_t, int>>> of_node_;  ///< by node: its buffers and their values
};

}  // namespace

Result reuse_memory(const Graph& graph, const Settings& /*settings*/) {
    return Reuse(graph).run();
}

}  // namespace tutti::graph
