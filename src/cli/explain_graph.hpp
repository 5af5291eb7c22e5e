// tutti explain --graph: describes graphs: their contents, whether graph::prove() finds them correct, and the results
// of the optimisation passes.
#pragma once

#include <string>
#include <vector>

namespace tutti::cli {

struct GraphQuestion {
    std::vector<std::string> files;  ///< each with the texts of one graph or several (Graph::to_text)
    int rank = 0;                    ///< whose graph is printed and drawn
    std::string svg;                 ///< the file for a picture of it; empty: no picture
};

/// Prints to standard output. Returns the exit status: 0, or 1 if the proof fails. Throws InvalidArgument for a file
/// that cannot be read or written, for a text that is not a graph (with the line), and for a rank without a graph.
int explain_graphs(const GraphQuestion& question);

}  // namespace tutti::cli
