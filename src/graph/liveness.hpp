// Liveness: the bytes whose present values somebody reads later, looked at from the end of a graph to its beginning.
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
    /// After the last node: all bytes but the temporaries. The graph outlives it.
    explicit LiveBytes(const Graph& graph);
    /// From behind the node to before it. An asynchronous one uses its buffers until its wait.
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
