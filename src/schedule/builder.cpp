// What all kinds of steps have in common. The calls of the kinds are in steps/.
#include "schedule/builder.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

namespace tutti::schedule {

Chunk Builder::scratch(std::uint64_t count, std::optional<DType> dtype) {
    TUTTI_ASSERT(schedule_.buffers.size() > row(Buffer::scratch));
    auto& buffers = schedule_.buffers;
    auto buffer = Buffer::scratch;
    if (dtype) {
        const auto found =
            std::ranges::find_if(buffers.begin() + row(Buffer::scratch), buffers.end(),
                                 [&](const BufferInfo& info) { return info.dtype == dtype && !info.codes; });
        buffer = static_cast<Buffer>(found - buffers.begin());
        if (found == buffers.end()) buffers.push_back({.dtype = dtype});
    }
    const Chunk chunk{buffer, schedule_.of(buffer).count, count};
    schedule_.of(buffer).count += count;
    TUTTI_ASSERT(buffers.size() <= std::numeric_limits<std::underlying_type_t<Buffer>>::max());
    TUTTI_ASSERT(!schedule_.of(buffer).codes && chunk.offset + count == schedule_.of(buffer).count);
    return chunk;
}

Chunk Builder::scratch(std::uint64_t count, const CodeForm& form) {
    TUTTI_ASSERT(form.block > 0);
    auto& buffers = schedule_.buffers;
    const auto found = std::ranges::find(buffers, form, &BufferInfo::codes);
    const auto buffer = static_cast<Buffer>(found - buffers.begin());
    if (found == buffers.end()) buffers.push_back({.dtype = DType::uint8, .codes = form});
    BufferInfo& info = schedule_.of(buffer);
    info.count = (info.count + form.block - 1) / form.block * form.block;
    const Chunk chunk{buffer, info.count, count};
    info.count += count;
    TUTTI_ASSERT(buffers.size() <= std::numeric_limits<std::underlying_type_t<Buffer>>::max());
    TUTTI_ASSERT(info.codes == form && chunk.offset % form.block == 0);
    return chunk;
}

Step& Builder::begin(StepKind kind) {
    dependencies_.begin();
    Step& step = schedule_.steps.emplace_back();
    step.kind = kind;
    step.first_operand = static_cast<std::uint32_t>(schedule_.operands.size());
    return step;
}

// It reads the sources and writes the target; end() is the caller's.
Step& Builder::begin_local(StepKind kind, Chunk target, std::span<const Chunk> sources) {
    TUTTI_ASSERT(is_local(kind));
    TUTTI_ASSERT(target.count > 0 && !sources.empty());
    Step& step = begin(kind);
    step.target = target;
    for (const Chunk& source : sources) {
        schedule_.operands.push_back({.chunk = source});
        reads(source);
    }
    writes(target);
    return step;
}

void Builder::uses(const Chunk& chunk) {
    TUTTI_ASSERT(chunk.offset + chunk.count >= chunk.offset);
    std::uint64_t& end = schedule_.of(chunk.buffer).used_end;
    TUTTI_ASSERT(row(chunk.buffer) < schedule_.buffers.size());
    if (chunk.count > 0) end = std::max(end, chunk.offset + chunk.count);
}

void Builder::reads(const Chunk& chunk) {
    uses(chunk);
    dependencies_.reads(chunk);
}

void Builder::writes(const Chunk& chunk) {
    uses(chunk);
    dependencies_.writes(chunk);
}

void Builder::end() {
    TUTTI_ASSERT(!schedule_.steps.empty());
    Step& step = schedule_.steps.back();
    if (!is_shared(step.kind)) dependencies_.waits_for(last_wait_);
    const auto waits = dependencies_.end();
    TUTTI_ASSERT(waits.empty() || waits.back() + 1 < schedule_.steps.size());
    TUTTI_ASSERT(step.first_operand <= schedule_.operands.size());
    step.operand_count = static_cast<std::uint32_t>(schedule_.operands.size()) - step.first_operand;
    step.first_after = static_cast<std::uint32_t>(schedule_.after.size());
    step.after_count = static_cast<std::uint32_t>(waits.size());
    schedule_.after.insert(schedule_.after.end(), waits.begin(), waits.end());
}

// This rank has read all before. The release matters where the schedule before has not ended with the last of four:
// publications that no rank makes need no room.
void Builder::begin_turn_group() {
    TUTTI_ASSERT(!schedule_.in_place);
    schedule_.turn_group = true;
    next_round_ = (next_round_ + 3) / 4 * 4;
    TUTTI_ASSERT(next_round_ % 4 == 0);
    release(next_round_);
}

Schedule Builder::finish() && {
    TUTTI_ASSERT(last_signal_ <= last_step() && last_wait_ <= last_step());
    if (next_round_ > 0) release(next_round_);
    if (schedule_.in_place) {
        begin(StepKind::settle).round = next_round_;
        end();
    }
    schedule_.publications = next_round_;
    return std::move(schedule_);
}

}  // namespace tutti::schedule
