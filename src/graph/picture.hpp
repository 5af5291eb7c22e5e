// Picture: graphs over their predicted time, as an SVG: a lane for compute steps, one for communication. Pure
// functions.
//
// It holds no script and follows the reader's choice of a light or a dark page.
#pragma once

#include <tutti/graph.hpp>

#include <span>
#include <string>
#include <vector>

namespace tutti::graph {

/// The predicted time of a node on one of its rank's lanes, by the figures of Graph::predicted_us().
struct Bar {
    int node = 0;             ///< position in Graph::nodes
    bool moves_data = false;  ///< whether it is on the communication lane
    double begin_us = 0, end_us = 0;
};
/// A bar for each node, in the graph's order. A wait's bar begins when the rank reaches it. The last bar ends at the
/// graph's predicted_us().
std::vector<Bar> timeline(const Graph& graph);

struct Panel {
    std::string title;
    const Graph& graph;
};
/// The panels side by side, on one time scale. Graphs with very many dependencies are drawn without arrows.
std::string picture_of(std::span<const Panel> panels);

}  // namespace tutti::graph
