// Line: reads and checks the words of one line of a schedule text. Errors name the text, the line and what is expected.
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"
#include "schedule/schedule.hpp"
#include "schedule/text.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::schedule {

class Line {
 public:
    Line(std::string_view where, InputIs input) : where_(where), input_(input) {}

    void next(std::string_view text);
    /// Sets the buffers of the schedule being read; null: none is being read.
    void set_buffers(const std::vector<BufferInfo>* buffers) {
        buffers_ = buffers;
        scratch_ends_.clear();
    }
    /// Fixes the current lengths of the scratch buffers: later lines cannot name elements behind them.
    void close_scratch();
    bool scratch_is_closed() const { return !scratch_ends_.empty(); }
    /// Call this after the last line: later errors then quote no words.
    void end() { words_.clear(); }
    bool empty() const { return words_.empty(); }
    std::string_view name() const {
        TUTTI_ASSERT(!words_.empty());
        return words_.front();
    }
    std::string text() const;

    [[noreturn]] void fail(std::string_view what, std::string_view expected) const;

    int number() const { return number_; }
    bool more() const { return next_ < words_.size(); }
    std::string_view word(std::string_view expected);
    bool flag(std::string_view name);
    /// Whether a number comes next.
    bool has_number() const;
    void end_of_line() const;

    std::uint64_t number(std::uint64_t max, std::string_view what) { return to_number(word(what), max, what); }
    std::uint64_t count(std::string_view what = "count") { return number(elements_max, what); }
    std::uint32_t round() { return static_cast<std::uint32_t>(number(1U << 20U, "round")); }
    /// Reads the rest of the line: a count for each rank.
    std::vector<std::uint64_t> counts(int ranks);
    DType dtype();
    /// Reads a form such as int8/256.
    CodeForm code_form() { return to_code_form(word("a form of codes")); }
    /// Whether the next word is a form of codes.
    bool has_code_form() const { return more() && words_[next_].find('/') != std::string_view::npos; }
    Collective collective();
    /// Reads different ranks, as in 0,2,3.
    std::vector<Rank> ranks(int ranks);
    Rank rank(int ranks) { return to_rank(word("a rank"), ranks); }

    Chunk chunk() { return to_chunk(word("a chunk"), input_); }
    /// Reads a chunk of another rank. Its input may be a separate buffer even if this rank's input is its output.
    Chunk chunk_of_peer() { return to_chunk(word("a chunk"), InputIs::separate); }
    std::vector<Chunk> chunks();
    /// Reads operands: chunks, 1@slot[0:2] or 1@input[0:2], each with as many elements as the target.
    std::vector<Operand> operands(const Chunk& target, int ranks);
    void equal(const Chunk& target, const Chunk& source) const;

 private:
    std::uint64_t to_number(std::string_view text, std::uint64_t max, std::string_view what) const;
    Rank to_rank(std::string_view text, int ranks) const;
    std::pair<std::uint64_t, std::uint64_t> to_range(std::string_view text) const;
    Chunk to_chunk(std::string_view text, InputIs input) const;
    DType to_dtype(std::string_view text) const;
    CodeForm to_code_form(std::string_view text) const;
    Buffer scratch_of(DType dtype) const;
    Buffer scratch_of(const CodeForm& form) const;

    std::string_view where_;
    InputIs input_;
    int number_ = 0;
    std::vector<std::string_view> words_;
    std::size_t next_ = 0;
    const std::vector<BufferInfo>* buffers_ = nullptr;
    std::vector<std::uint64_t> scratch_ends_;  // once fixed: by row of buffers_
};

}  // namespace tutti::schedule
