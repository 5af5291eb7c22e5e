// A collective of a graph, for all ranks of its group together: whether the ranks' calls match, and each rank's result.
// Pure functions.
#pragma once

#include "graph/symbols.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tutti::graph {

using Blocks = std::vector<Contents>;  // by block
/// A rank's part of a collective, or its result: by piece, then by block.
using Pieces = std::vector<Blocks>;

struct JointCall {
    int first_rank = -1;  ///< in the group; the others' calls are compared with its call
    const Node* first = nullptr;
    std::vector<Pieces> inputs;  ///< by rank of the group
    std::vector<const Node*> nodes;
    int joined = 0;
    std::vector<Pieces> results;  ///< set when all ranks have joined
};

/// The first difference between two ranks' calls ("another dtype"); empty: they match.
std::string_view difference(const Node& a, const Node& b);

struct WrongSize {
    std::size_t rank = 0;  ///< in the group
    std::uint64_t expected = 0, got = 0;
};
/// Fills in the results of a call that all ranks have joined, or returns the first rank whose blocks have a wrong size.
std::optional<WrongSize> resolve(JointCall& call, Determinism determinism);

}  // namespace tutti::graph
