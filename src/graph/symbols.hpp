// Symbols: what bytes hold, as terms over what they held at first. Equal terms are equal values on every input.
//
// A term is known by a hash of 64 bits: two that differ are taken for equal once in 10^19. Pure functions.
#pragma once

#include "core/assert.hpp"
#include "core/interval_map.hpp"

#include <tutti/graph.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::graph {

/// The byte `shift` of a term. The bytes of one term that lie side by side are one stretch.
struct Symbol {
    std::uint64_t term = 0;
    std::uint64_t shift = 0;
    int writer = -1;  ///< position of the node that put it there, for messages
    Symbol from(std::uint64_t bytes) const { return {term, shift + bytes, writer}; }
    friend bool operator==(const Symbol& a, const Symbol& b) { return a.term == b.term && a.shift == b.shift; }
};

/// The contents of a range, from its first byte to its last, without holes.
struct Part {
    std::uint64_t bytes = 0;
    Symbol symbol;
};
using Contents = std::vector<Part>;

/// In bytes.
std::uint64_t size_of(const Contents& contents) noexcept;
std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) noexcept;
std::uint64_t hash_of(std::uint64_t hash, const Contents& contents) noexcept;

/// One rank's memory.
class Memory {
 public:
    /// Every byte holds what it held at first, which no two ranks have in common.
    Memory(int rank, const std::vector<std::uint64_t>& buffers);
    Contents read(const Range& range) const;
    void write(const Range& range, const Contents& contents, int writer);
    const IntervalMap<Symbol>& buffer(std::size_t index) const {
        TUTTI_ASSERT(index < buffers_.size());
        return buffers_[index];
    }

 private:
    std::vector<IntervalMap<Symbol>> buffers_;
};

/// How a collective combines, as far as its results depend on it.
struct Combining {
    ReduceOp::Kind op = ReduceOp::Kind::sum;
    std::uint64_t element_bytes = 1;
    bool exact = true;          ///< in any order of ranks
    std::uint64_t context = 0;  ///< where not: which call it is, and of how many bytes
};
/// What the ranks' inputs, of equal sizes and in rank order, become.
Contents combined(std::span<const Contents> inputs, const Combining& how);

/// What a function of rows leaves in its writes, in blocks of whole rows: row by row a term over the same row of the
/// reads that are cut, and over those that each row takes whole. However rows are cut into chunks, the terms are equal.
struct RowsOf {
    std::uint64_t function = 0;  ///< which one it is
    std::uint64_t rows = 0;
    std::vector<std::uint32_t> whole;  ///< which reads
};
std::vector<Contents> computed_by_rows(const RowsOf& step, std::span<const Contents> reads,
                                       std::span<const std::uint64_t> write_bytes);

}  // namespace tutti::graph
