// Symbols: the contents of bytes, as terms over their initial contents. Equal terms are equal values for every input.
//
// A 64-bit hash stands for a term: two different terms have equal hashes once in 10^19. Pure functions.
#pragma once

#include "core/assert.hpp"
#include "core/interval_map.hpp"

#include <tutti/graph.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::graph {

/// Byte number `shift` of a term. Adjacent bytes of one term form one stretch.
struct Symbol {
    std::uint64_t term = 0;
    std::uint64_t shift = 0;
    int writer = -1;  ///< position of the node that wrote it, for messages
    Symbol from(std::uint64_t bytes) const { return {term, shift + bytes, writer}; }
    friend bool operator==(const Symbol& a, const Symbol& b) { return a.term == b.term && a.shift == b.shift; }
};

/// The contents of a range, from its first byte to its last, without holes.
struct Part {
    std::uint64_t bytes = 0;
    Symbol symbol;
};
using Contents = std::vector<Part>;

/// The length in bytes.
std::uint64_t size_of(const Contents& contents) noexcept;
std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) noexcept;
std::uint64_t hash_of(std::uint64_t hash, const Contents& contents) noexcept;

/// One rank's memory.
class Memory {
 public:
    /// Every byte holds its initial contents, which are distinct on every rank.
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
    bool exact = true;          ///< the order of ranks does not change the result
    std::uint64_t context = 0;  ///< if not exact: identifies the call and its number of bytes
};
/// The combination of the ranks' inputs, which have equal sizes and are in rank order.
Contents combined(std::span<const Contents> inputs, const Combining& how);

/// The contents of the writes of a function of rows, whose blocks have whole rows: for each row a term over the same
/// row of the reads that are cut, and over the reads that each row takes whole. The terms do not depend on how rows are
/// cut into chunks.
struct RowsOf {
    std::uint64_t function = 0;  ///< identifies the function
    std::uint64_t rows = 0;
    std::vector<std::uint32_t> whole;  ///< indices of the reads that each row takes whole
};
std::vector<Contents> computed_by_rows(const RowsOf& step, std::span<const Contents> reads,
                                       std::span<const std::uint64_t> write_bytes);

}  // namespace tutti::graph
