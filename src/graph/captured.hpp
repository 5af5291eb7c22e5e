// CapturedCalls: the prepared operations, functions and addresses behind a graph's nodes, in this process.
//
// Immutable once the graph exists; graphs share it. Threads: any.
#pragma once

#include "api/call.hpp"
#include "core/assert.hpp"

#include <tutti/graph.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace tutti::graph::detail {

struct CapturedCall {
    api::PreparedOperation model;  ///< the operation of a communication node; never issued
    Views run;                     ///< the function of a compute step
    bool takes_views = false;
    bool elementwise = false;  ///< chunks are tensors of one dimension
    ConstTensorList reads;
    TensorList writes;
};

class CapturedCalls {
 public:
    std::vector<CapturedCall> calls;  ///< by Piece::call
    std::vector<std::byte*> buffers;  ///< their first bytes, by buffer number in the graph

    std::byte* address(const Range& range) const {
        TUTTI_ASSERT(range.bytes == 0 || range.buffer < buffers.size());
        return range.bytes == 0 ? nullptr : buffers[range.buffer] + range.offset;
    }
};

}  // namespace tutti::graph::detail
