// Bindings: where the memory of a capture lies now, as Executable::bind() says.
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
    /// Nothing has moved. `graph`: of capture(), or what passes made of it; it is looked at here alone.
    explicit Bindings(const Graph& graph);

    /// Moves all of them at once: each names the memory where it is before any of them moves. Throws InvalidArgument
    /// where the graph has no such tensor, a part of it has moved, two bindings name the same, or what the graph writes
    /// would share memory with something else of the graph; the bindings are then not to be used.
    void move(std::span<const Binding> bindings);
    /// Where [at, at + bytes) of the capture lies now. Throws InvalidArgument where only a part of it has moved.
    std::byte* place(const std::byte* at, std::uint64_t bytes) const;

 private:
    /// Of the capture.
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
