// PiecewiseWriter: writes the elements of a view of any strides in row-major order, from bytes that arrive in pieces. A
// receive uses it to put a message into strided memory without a copy of the whole.
//
// Threads: one at a time.
#pragma once

#include <tutti/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

class PiecewiseWriter {
 public:
    /// For a view in host memory.
    explicit PiecewiseWriter(const TensorView& view);
    /// Writes the next elements: `bytes` holds whole elements, `offset` bytes behind the first of all. An offset of 0
    /// begins anew.
    void operator()(std::size_t offset, std::span<const std::byte> bytes);

 private:
    struct Dimension {
        std::int64_t size, stride;  // in elements
    };
    void rewind();
    void write_row(std::byte* to, const std::byte* from, std::int64_t count) const;

    std::byte* const base_;
    const std::size_t element_bytes_, byte_count_;
    std::vector<Dimension> dimensions_;  // outermost first, at least one; the last is a row
    std::vector<std::int64_t> index_;    // of the next element, by dimension
    std::int64_t row_ = 0;               // where the row of the next element begins, in elements from the base
    std::size_t done_ = 0;               // bytes
};

}  // namespace tutti
