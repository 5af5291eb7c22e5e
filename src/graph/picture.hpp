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

/// The time that a node takes on one of its rank's lanes, by the figures of Graph::predicted_us().
struct Bar {
    int node = 0;             ///< position in Graph::nodes
    bool moves_data = false;  ///< on the lane of communication
    double begin_us = 0, end_us = 0;
};
/// A bar for each node, in their order. A wait's begins when the rank arrives there. The latest end is the graph's
/// predicted_us().
std::vector<Bar> timeline(const Graph& graph);

struct Panel {
    std::string title;
    const Graph& graph;
};
/// The panels side by side, on one scale of time. Of a graph with very many dependencies the arrows are left out.
std::string picture_of(std::span<const Panel> panels);

}  // namespace tutti::graph
