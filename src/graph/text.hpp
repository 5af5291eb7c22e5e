// Text: reads files with one or more graphs in the form of Graph::to_text(). Pure functions.
#pragma once

#include <tutti/graph.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tutti::graph {

/// As Graph::from_text; errors begin with `origin`, and lines count from `first_line`.
Graph read_graph(std::string_view text, const std::string& origin, int first_line);
/// Reads one or more graphs; each begins with the line "tutti graph 1". Errors as read_graph.
std::vector<Graph> read_graphs(std::string_view text, const std::string& origin);

}  // namespace tutti::graph
