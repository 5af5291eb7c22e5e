#include "schedule/steps/line.hpp"

#include "core/assert.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tutti::schedule {
namespace {

std::vector<std::string_view> words_of(std::string_view line) {
    line = line.substr(0, line.find('#'));
    std::vector<std::string_view> words;
    while (true) {
        const std::size_t begin = line.find_first_not_of(" \t\r");
        if (begin == std::string_view::npos) return words;
        const std::size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
        words.push_back(line.substr(begin, end - begin));
        line.remove_prefix(end);
    }
}

constexpr std::string_view scratch_prefix = "scratch.";

}  // namespace

void Line::next(std::string_view text) {
    TUTTI_ASSERT(number_ >= 0);
    words_ = words_of(text);
    next_ = 1;
    ++number_;
}

std::string Line::text() const {
    return fmt::format("{}", fmt::join(words_, " "));
}

void Line::fail(std::string_view what, std::string_view expected) const {
    constexpr std::size_t shown_bytes_max = 200;
    const std::string shown = visible_line(text().substr(0, shown_bytes_max));
    const std::string words = words_.empty() ? "" : fmt::format(" (\"{}\")", shown);
    throw InvalidArgument(fmt::format("{}: line {}{}: {}: expected {}", where_, number_, words, what, expected));
}

std::string_view Line::word(std::string_view expected) {
    TUTTI_ASSERT(!expected.empty());
    if (!more()) fail("the line is too short", expected);
    TUTTI_ASSERT(next_ > 0 && next_ < words_.size());
    return words_[next_++];
}

bool Line::flag(std::string_view name) {
    const bool found = more() && words_[next_] == name;
    next_ += found ? 1 : 0;
    return found;
}

bool Line::has_number() const {
    return more() && words_[next_].front() >= '0' && words_[next_].front() <= '9';
}

void Line::close_scratch() {
    TUTTI_ASSERT(buffers_ != nullptr && buffers_->size() > row(Buffer::scratch));
    if (scratch_is_closed()) return;
    for (const BufferInfo& buffer : *buffers_) {
        const auto own = static_cast<std::size_t>(&buffer - buffers_->data()) >= row(Buffer::scratch);
        if (own && buffer.used_end > buffer.count)
            fail(fmt::format("the rank uses more than its scratch buffer of {} elements", buffer.count),
                 "a line \"scratch N\" for all of them above");
        scratch_ends_.push_back(buffer.count);
        TUTTI_ASSERT(scratch_ends_.size() <= buffers_->size());
    }
}

Collective Line::collective() {
    const std::string_view name = word("a collective");
    if (const auto found = collective_named(name)) return *found;
    std::vector<std::string_view> names;
    for (const CollectiveTraits& traits : collective_table) names.push_back(traits.name);
    fail(fmt::format("\"{}\" is no collective{}", name, did_you_mean(name, names)),
         fmt::format("one of {}", fmt::join(names, ", ")));
}

std::vector<Rank> Line::ranks(int ranks) {
    const std::string_view list = word("ranks");
    std::vector<Rank> all;
    for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        const Rank rank = to_rank(list.substr(begin, end - begin), ranks);
        if (std::ranges::find(all, rank) != all.end())
            fail(fmt::format("rank {} is twice in {}", rank, list), "different ranks");
        all.push_back(rank);
        begin = end + 1;
    }
    return all;
}

DType Line::dtype() {
    return to_dtype(word("a type"));
}

DType Line::to_dtype(std::string_view text) const {
    std::vector<std::string_view> names;
    for (int type = 0; type < dtype_count; ++type) {
        names.push_back(to_string(static_cast<DType>(type)));
        if (names.back() == text) return static_cast<DType>(type);
    }
    fail(fmt::format("\"{}\" is no type{}", text, did_you_mean(text, names)),
         fmt::format("one of {}", fmt::join(names, ", ")));
}

CodeForm Line::to_code_form(std::string_view text) const {
    TUTTI_ASSERT(!text.empty());
    if (const auto form = code_form_named(text)) return *form;
    fail(fmt::format("\"{}\" is no form of codes", text),
         fmt::format("FORMAT/BLOCK, with a format of {} and 1 to {} elements in a block, as int8/256",
                     fmt::join(format_names, ", "), elements_max));
}

Buffer Line::scratch_of(const CodeForm& form) const {
    TUTTI_ASSERT(form.block > 0);
    if (buffers_ != nullptr) {
        const auto found = std::ranges::find(*buffers_, form, &BufferInfo::codes);
        if (found != buffers_->end()) return static_cast<Buffer>(found - buffers_->begin());
    }
    fail(fmt::format("there is no scratch buffer of codes {}", to_string(form)),
         fmt::format("a line \"scratch {} N\" above", to_string(form)));
}

Buffer Line::scratch_of(DType dtype) const {
    for (std::size_t b = row(Buffer::scratch); buffers_ != nullptr && b < buffers_->size(); ++b) {
        if ((*buffers_)[b].dtype == dtype && !(*buffers_)[b].codes) return static_cast<Buffer>(b);
    }
    fail(fmt::format("there is no scratch buffer of {}", to_string(dtype)),
         fmt::format("a line \"scratch {} N\" above", to_string(dtype)));
}

void Line::end_of_line() const {
    if (more()) fail(fmt::format("\"{}\" is too much", words_[next_]), "the end of the line");
}

std::vector<std::uint64_t> Line::counts(int ranks) {
    TUTTI_ASSERT(ranks >= 0);
    std::vector<std::uint64_t> all;
    while (more()) all.push_back(count());
    if (all.size() != static_cast<std::size_t>(ranks))
        fail(fmt::format("there are {} numbers", all.size()), fmt::format("one of each rank: {}", ranks));
    return all;
}

std::vector<Chunk> Line::chunks() {
    std::vector<Chunk> all;
    while (more() && words_[next_].ends_with(']')) all.push_back(chunk());
    return all;
}

std::vector<Operand> Line::operands(const Chunk& target, int ranks) {
    TUTTI_ASSERT(ranks > 0);
    std::vector<Operand> all;
    while (more() && words_[next_].ends_with(']')) {
        const std::string_view text = words_[next_++];
        const std::size_t at = text.find('@');
        Operand& operand = all.emplace_back();
        if (at != std::string_view::npos) operand.peer = to_rank(text.substr(0, at), ranks);
        const std::string_view what = at == std::string_view::npos ? text : text.substr(at + 1);
        if (operand.peer >= 0 && what.starts_with("slot["))
            std::tie(operand.slot_offset, operand.chunk.count) = to_range(what.substr(4));
        else
            operand.chunk = to_chunk(what, operand.peer >= 0 ? InputIs::separate : input_);
        equal(target, operand.chunk);
    }
    if (all.empty()) fail("there is nothing to combine", "chunks, RANK@slot[BEGIN:END] or RANK@chunk");
    return all;
}

void Line::equal(const Chunk& target, const Chunk& source) const {
    if (target.count != source.count)
        fail(fmt::format("{} elements from {}", target.count, source.count), "chunks of one length");
}

std::uint64_t Line::to_number(std::string_view text, std::uint64_t max, std::string_view what) const {
    const auto value = number_in<std::uint64_t>(text);
    if (!value || *value > max)
        fail(fmt::format("\"{}\" is no {}", text, what), fmt::format("a number from 0 to {}", max));
    return *value;
}

Rank Line::to_rank(std::string_view text, int ranks) const {
    TUTTI_ASSERT(ranks >= 0);
    if (ranks == 0) fail("a rank before the number of ranks", "a line \"ranks N\" above");
    return static_cast<Rank>(to_number(text, static_cast<std::uint64_t>(ranks - 1), "rank"));
}

// [2:4], as offset and count
std::pair<std::uint64_t, std::uint64_t> Line::to_range(std::string_view text) const {
    const std::size_t colon = text.find(':');
    if (!text.starts_with('[') || !text.ends_with(']') || colon == std::string_view::npos)
        fail(fmt::format("\"{}\" is no range", text), "[BEGIN:END]");
    const std::uint64_t begin = to_number(text.substr(1, colon - 1), elements_max, "element");
    const std::uint64_t end = to_number(text.substr(colon + 1, text.size() - colon - 2), elements_max, "element");
    if (end < begin) fail(fmt::format("{} ends before it begins", text), "[BEGIN:END] with END not below BEGIN");
    return {begin, end - begin};
}

// input[2:4]
Chunk Line::to_chunk(std::string_view text, InputIs input) const {
    const std::size_t open = std::min(text.find('['), text.size());
    const auto name = text.substr(0, open);
    Chunk chunk;
    if (name == "input")
        chunk.buffer = input == InputIs::output ? Buffer::output : Buffer::input;
    else if (name == "output")
        chunk.buffer = Buffer::output;
    else if (name == "scratch")
        chunk.buffer = Buffer::scratch;
    else if (name.starts_with(scratch_prefix) && name.find('/') != std::string_view::npos)
        chunk.buffer = scratch_of(to_code_form(name.substr(scratch_prefix.size())));
    else if (name.starts_with(scratch_prefix))
        chunk.buffer = scratch_of(to_dtype(name.substr(scratch_prefix.size())));
    else
        fail(fmt::format("\"{}\" is no chunk", text),
             "input[BEGIN:END], output[BEGIN:END], scratch[BEGIN:END], scratch.DTYPE[BEGIN:END] or "
             "scratch.FORMAT/BLOCK[BEGIN:END]");
    std::tie(chunk.offset, chunk.count) = to_range(text.substr(open));
    TUTTI_ASSERT(chunk.offset + chunk.count <= elements_max);
    const std::size_t of_buffer = row(chunk.buffer);
    if (of_buffer > row(Buffer::scratch) && (*buffers_)[of_buffer].codes &&
        chunk.offset % (*buffers_)[of_buffer].codes->block != 0)
        fail(fmt::format("\"{}\" begins inside of a block", text),
             fmt::format("a multiple of {}", (*buffers_)[of_buffer].codes->block));
    if (of_buffer >= row(Buffer::scratch) && of_buffer < scratch_ends_.size() &&
        chunk.offset + chunk.count > scratch_ends_[of_buffer])
        fail(fmt::format("\"{}\" ends behind the scratch buffer of {} elements", text, scratch_ends_[of_buffer]),
             "a line \"scratch N\" for all of them above the rank's first line \"use\"");
    return chunk;
}

}  // namespace tutti::schedule
