// Accesses: the memory that a prepared operation reads and writes, block by block. Pure functions.
#pragma once

#include "api/call.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::graph {

struct Bytes {
    const std::byte* at = nullptr;
    std::uint64_t bytes = 0;
};

struct Accesses {
    std::vector<Bytes> reads, writes;  ///< as in Piece
    bool opaque = false;               ///< the ranges are bounds of tensors with gaps
};
Accesses accesses_of(const tutti::detail::Operation& operation);

}  // namespace tutti::graph
