#include "schedule/steps/writer.hpp"

#include "core/assert.hpp"
#include "schedule/steps/kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace tutti::schedule {
namespace {

// Of a schedule in place a peer's operand is a chunk of its buffers, else a piece of its publication.
std::string to_text(const Schedule& s, const Operand& operand) {
    if (operand.peer < 0) return to_text(s, operand.chunk);
    if (s.in_place) return fmt::format("{}@{}", operand.peer, to_text(s, operand.chunk));
    return fmt::format("{}@slot[{}:{}]", operand.peer, operand.slot_offset, operand.slot_offset + operand.chunk.count);
}

}  // namespace

std::string Writer::run() {
    TUTTI_ASSERT(text_.empty() && rounds_ == 0);
    TUTTI_ASSERT(s_.buffers.size() > row(Buffer::scratch));
    if (s_.turn_group) add("turn_group");
    if (s_.in_slots) add("in_slots");
    if (s_.input_is_output) add("input_is_output");
    if (!s_.single_rounding) add("not_single_rounding");
    for (const BufferInfo& buffer : s_.buffers) {
        if (&buffer == &s_.of(Buffer::input)) {
            if (buffer.dtype) add(fmt::format("input_type {}", to_string(*buffer.dtype)));
            continue;
        }
        if (buffer.codes) add(fmt::format("scratch {} {}", to_string(*buffer.codes), buffer.count));
        if (buffer.dtype && !buffer.codes) add(fmt::format("scratch {} {}", to_string(*buffer.dtype), buffer.count));
        if (!buffer.dtype && buffer.count > 0) add(fmt::format("scratch {}", buffer.count));
    }
    // The Builder's finish() adds a last release and, in place, settle.
    std::size_t count = s_.steps.size();
    if (count > 0 && s_.steps.back().kind == StepKind::settle) --count;
    if (count > 0 && s_.publications > 0 && s_.steps[count - 1].kind == StepKind::release) --count;
    for (std::size_t i = 0; i < count; ++i) {
        const Step& step = s_.steps[i];
        kind_of(step.kind).write(*this, {.rank = 0, .index = i, .schedule = s_, .step = step});
    }
    use_rounds(s_.publications);
    if (s_.otherwise) add("otherwise");
    return std::move(text_);
}

void Writer::use_rounds(std::uint32_t until) {
    TUTTI_ASSERT(until <= s_.publications);
    if (until > rounds_) add(fmt::format("use_rounds {}", until - rounds_));
    rounds_ = std::max(rounds_, until);
}

std::span<const std::uint32_t> Writer::edges(std::size_t step) const {
    return step < edges_.size() ? std::span<const std::uint32_t>(edges_[step]) : std::span<const std::uint32_t>();
}

std::string Writer::operands(const At& at) const {
    TUTTI_ASSERT(&at.schedule == &s_);
    std::string words;
    for (const Operand& operand : at.operands()) words += fmt::format(" {}", to_text(s_, operand));
    return words;
}

}  // namespace tutti::schedule
