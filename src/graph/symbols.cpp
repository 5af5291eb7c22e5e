#include "graph/symbols.hpp"

#include "core/assert.hpp"
#include "core/split_mix.hpp"
#include "graph/value.hpp"

#include <algorithm>

namespace tutti::graph {
namespace {

constexpr std::uint64_t initial_tag = 0x1f83d9abfb41bd6bULL, combined_tag = 0x5be0cd19137e2179ULL,
                        torn_tag = 0x9b05688c2b3e6c1fULL, rows_tag = 0x510e527fade682d1ULL;

// A place in contents.
class Cursor {
 public:
    explicit Cursor(const Contents& contents) : at_(contents.data()), end_(contents.data() + contents.size()) {}
    /// The symbol of the next `bytes`, and moves on; of an element that lies in several parts, a term of its own.
    Symbol take(std::uint64_t bytes) {
        TUTTI_ASSERT(at_ != end_ && done_ <= at_->bytes);
        if (at_->bytes - done_ >= bytes) {
            const Symbol whole = at_->symbol.from(done_);
            advance(bytes);
            return whole;
        }
        std::uint64_t term = torn_tag;
        while (bytes > 0) {
            const std::uint64_t here = std::min(bytes, at_->bytes - done_);
            const Symbol s = at_->symbol.from(done_);
            term = mixed(mixed(mixed(term, s.term), s.shift), here);
            advance(here);
            bytes -= here;
        }
        return {term, 0, -1};
    }

 private:
    void advance(std::uint64_t bytes) {
        done_ += bytes;
        if (done_ == at_->bytes && at_ + 1 != end_) {
            ++at_;
            done_ = 0;
        }
    }
    const Part* at_;
    const Part* end_;
    std::uint64_t done_ = 0;
};

void append(Contents& to, std::uint64_t bytes, const Symbol& symbol) {
    TUTTI_ASSERT(bytes > 0);
    if (!to.empty() && to.back().symbol.from(to.back().bytes) == symbol)
        to.back().bytes += bytes;
    else
        to.push_back({bytes, symbol});
}

// Where an input's symbol changes, in whole elements: an element that is in two parts lies between two of them.
void add_cuts(std::vector<std::uint64_t>& elements, const Contents& input, std::uint64_t element_bytes) {
    TUTTI_ASSERT(element_bytes > 0);
    std::uint64_t at = 0;
    for (const Part& p : input) {
        at += p.bytes;
        elements.push_back(at / element_bytes);
        elements.push_back((at + element_bytes - 1) / element_bytes);
    }
}
void sort_cuts(std::vector<std::uint64_t>& elements) {
    std::ranges::sort(elements);
    elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
}

}  // namespace

std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) noexcept {
    hash ^= word + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
    return mix_bits(hash);
}

std::uint64_t size_of(const Contents& contents) noexcept {
    std::uint64_t bytes = 0;
    for (const Part& p : contents) bytes += p.bytes;
    return bytes;
}

std::uint64_t hash_of(std::uint64_t hash, const Contents& contents) noexcept {
    for (const Part& p : contents) hash = mixed(mixed(mixed(hash, p.symbol.term), p.symbol.shift), p.bytes);
    return hash;
}

Memory::Memory(int rank, const std::vector<std::uint64_t>& buffers) : buffers_(buffers.size()) {
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        const std::uint64_t term = mixed(mixed(initial_tag, static_cast<std::uint64_t>(rank)), i);
        buffers_[i].set(0, buffers[i], Symbol{term, 0, -1});
    }
}

Contents Memory::read(const Range& range) const {
    TUTTI_ASSERT(range.bytes == 0 || range.buffer < buffers_.size());
    Contents contents;
    if (range.bytes == 0) return contents;
    buffers_[range.buffer].for_each(
        range.offset, range.end(),
        [&](std::uint64_t begin, std::uint64_t end, const Symbol& s) { append(contents, end - begin, s); });
    return contents;
}

void Memory::write(const Range& range, const Contents& contents, int writer) {
    TUTTI_ASSERT(range.bytes == 0 || range.buffer < buffers_.size());
    std::uint64_t at = range.offset;
    for (const Part& p : contents) {
        buffers_[range.buffer].set(at, at + p.bytes, Symbol{p.symbol.term, p.symbol.shift, writer});
        at += p.bytes;
    }
}

Contents combined(std::span<const Contents> inputs, const Combining& how) {
    TUTTI_ASSERT(how.element_bytes > 0);
    Contents result;
    if (inputs.empty() || inputs.front().empty()) return result;
    const std::uint64_t bytes = size_of(inputs.front());
    std::vector<Cursor> cursors;
    for (const Contents& input : inputs) cursors.emplace_back(input);
    std::vector<Symbol> symbols(inputs.size());
    std::vector<std::uint64_t> cuts;
    for (const Contents& input : inputs) add_cuts(cuts, input, how.element_bytes);
    sort_cuts(cuts);
    std::uint64_t at = 0;
    for (const std::uint64_t element : cuts) {
        const std::uint64_t cut = std::min(element * how.element_bytes, bytes);
        if (cut <= at) continue;
        for (std::size_t r = 0; r < cursors.size(); ++r) symbols[r] = cursors[r].take(cut - at);
        const Symbol& first = symbols.front();
        const bool all_equal = std::ranges::all_of(symbols, [&](const Symbol& s) { return s == first; });
        if (all_equal && is_idempotent(how.op)) {
            append(result, cut - at, first);
        } else {
            std::uint64_t term = mixed(mixed(combined_tag, static_cast<std::uint64_t>(how.op)), how.element_bytes);
            term = mixed(term, first.shift % how.element_bytes);
            if (!how.exact) term = mixed(mixed(term, how.context), at - first.shift);
            for (const Symbol& s : symbols) term = mixed(mixed(term, s.term), s.shift - first.shift);
            append(result, cut - at, {term, first.shift, -1});
        }
        at = cut;
    }
    TUTTI_ASSERT(size_of(result) == bytes);
    return result;
}

std::vector<Contents> computed_by_rows(const RowsOf& step, std::span<const Contents> reads,
                                       std::span<const std::uint64_t> write_bytes) {
    TUTTI_ASSERT(step.rows > 0);
    struct Cut {
        Cursor cursor;
        std::uint64_t row_bytes;
    };
    std::uint64_t function = mixed(rows_tag, step.function);
    std::vector<Cut> inputs;
    std::vector<std::uint64_t> cuts;
    for (std::size_t i = 0; i < reads.size(); ++i) {
        if (std::ranges::find(step.whole, i) != step.whole.end()) {
            function = hash_of(mixed(mixed(function, i), size_of(reads[i])), reads[i]);
            continue;
        }
        const std::uint64_t row_bytes = size_of(reads[i]) / step.rows;
        inputs.push_back({Cursor(reads[i]), row_bytes});
        add_cuts(cuts, reads[i], row_bytes);
    }
    sort_cuts(cuts);
    std::vector<Contents> results(write_bytes.size());
    TUTTI_ASSERT(!inputs.empty());
    std::uint64_t at = 0;
    for (const std::uint64_t row : cuts) {
        if (row <= at) continue;
        // The rows from `at` on are rows k, k + 1, … of the first input's term, and lie as far into the other terms.
        std::uint64_t k = 0, term = function;
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            const Symbol s = inputs[i].cursor.take((row - at) * inputs[i].row_bytes);
            if (i == 0) k = s.shift / inputs[i].row_bytes;
            term = mixed(mixed(mixed(term, s.term), s.shift - k * inputs[i].row_bytes), inputs[i].row_bytes);
        }
        for (std::size_t w = 0; w < results.size(); ++w) {
            const std::uint64_t row_bytes = write_bytes[w] / step.rows;
            append(results[w], (row - at) * row_bytes, {mixed(term, w), k * row_bytes, -1});
        }
        at = row;
    }
    return results;
}

}  // namespace tutti::graph
