// Bindings: the present addresses of a capture's memory, after Executable::bind().
//
// Threads: one at a time.
#pragma once

#include "graph/captured.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::graph {

class Bindings {
 public:
    /// Begins with all memory at the addresses of the capture. `graph`: from capture(), or as passes changed it; only
    /// the constructor reads it.
    explicit Bindings(const Graph& graph);

    /// Moves all tensors at once: each binding names the memory by its place before this call. Throws InvalidArgument
    /// if the graph has no such tensor, a part of it has moved, two bindings name the same tensor, or memory that the
    /// graph writes would overlap other memory of the graph; do not use the object after that.
    void move(std::span<const Binding> bindings);
    /// The present address of [at, at + bytes) of the capture. Throws InvalidArgument if only a part of it has moved.
    std::byte* place(const std::byte* at, std::uint64_t bytes) const;

 private:
    /// A buffer of the capture.
    struct Buffer {
        const std::byte* begin;
        const std::byte* end;
        bool used = false, written = false;  ///< by the graph, as the passes left it
    };
    struct Moved {
        const std::byte* begin;
        std::uint64_t bytes;
        std::byte* now;
        bool in_this_call = false;
        const std::byte* end() const { return begin + bytes; }
    };
    void move(const ConstTensorView& captured, const TensorView& replacement, const std::vector<Moved>& before);
    void check_apart() const;

    std::vector<Buffer> buffers_;  ///< by address
    std::vector<Moved> moved_;
};

}  // namespace tutti::graph
