// tutti explain --graph: graphs in words: what they hold, whether they prove, what the passes make of them.
#pragma once

#include <string>
#include <vector>

namespace tutti::cli {

struct GraphQuestion {
    std::vector<std::string> files;  ///< each with the texts of one graph or several (Graph::to_text)
    int rank = 0;                    ///< whose graph is printed and drawn
    std::string svg;                 ///< also a picture, in this file; empty: none
};

/// Prints to standard output; the exit status: 0, or 1 where the graphs do not prove. Throws InvalidArgument for a file
/// that cannot be read or written, with its line for a text that is no graph, and for a rank without a graph.
int explain_graphs(const GraphQuestion& question);

}  // namespace tutti::cli
