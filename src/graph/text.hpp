// Text: graphs that somebody wrote down by Graph::to_text(), several in one file. Pure functions.
#pragma once

#include <tutti/graph.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tutti::graph {

/// As Graph::from_text; errors begin with `origin`, and lines count from `first_line`.
Graph read_graph(std::string_view text, const std::string& origin, int first_line);
/// One graph after the other: each begins with the line "tutti graph 1". Errors as by read_graph; at least one graph.
std::vector<Graph> read_graphs(std::string_view text, const std::string& origin);

}  // namespace tutti::graph
