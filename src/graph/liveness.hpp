// Liveness: the bytes that are live (a later node or the program reads their present values), computed from the end of
// a graph to its beginning.
//
// Threads: one at a time.
#pragma once

#include "core/interval_map.hpp"
#include "graph/value.hpp"

#include <map>
#include <vector>

namespace tutti::graph {

class LiveBytes {
 public:
    /// Begins after the last node, with all bytes live except temporaries. The graph must outlive the object.
    explicit LiveBytes(const Graph& graph);
    /// Goes back past a node. An asynchronous node uses its buffers until its wait.
    void step_back_over(const Node& node);
    bool any(const Range& range) const;

 private:
    struct Live {
        Live from(std::uint64_t /*bytes*/) const { return {}; }
    };
    void add(const Range& r) { maps_[r.buffer].set(r.offset, r.end(), {}); }
    void drop(const Range& r) { maps_[r.buffer].erase(r.offset, r.end()); }

    std::vector<IntervalMap<Live>> maps_;
    std::map<int, const Node*> asynchronous_;  // by id
};

}  // namespace tutti::graph
