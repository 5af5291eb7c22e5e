// What all kinds of steps have in common: the search for the steps that each one waits for. The calls of the kinds are
// in steps/.
#include "schedule/builder.hpp"

#include <algorithm>
#include <utility>

namespace tutti::schedule {

Chunk Builder::scratch(std::uint64_t count) {
    return more_of(Buffer::scratch, count);
}

Chunk Builder::scratch(std::uint64_t count, DType dtype) {
    auto& buffers = schedule_.buffers;
    const auto found = std::ranges::find(buffers, dtype, &BufferInfo::dtype);
    const auto buffer = static_cast<Buffer>(found - buffers.begin());
    if (found == buffers.end()) {
        buffers.push_back({.dtype = dtype});
        uses_.emplace_back();
    }
    return more_of(buffer, count);
}

Chunk Builder::more_of(Buffer buffer, std::uint64_t count) {
    const Chunk chunk{buffer, schedule_.of(buffer).count, count};
    schedule_.of(buffer).count += count;
    return chunk;
}

Step& Builder::begin(StepKind kind) {
    waits_.clear();
    read_now_.clear();
    written_now_.clear();
    Step& step = schedule_.steps.emplace_back();
    step.kind = kind;
    step.first_operand = static_cast<std::uint32_t>(schedule_.operands.size());
    return step;
}

void Builder::wait_for(std::int64_t step) {
    if (step >= 0) waits_.push_back(static_cast<std::uint32_t>(step));
}

void Builder::wait_for_all(std::int64_t since) {
    for (std::int64_t i = since; i < last_step(); ++i) wait_for(i);
}

void Builder::uses(const Chunk& chunk) {
    std::uint64_t& end = schedule_.of(chunk.buffer).used_end;
    end = std::max(end, chunk.offset + chunk.count);
}

void Builder::reads(const Chunk& chunk) {
    if (chunk.count == 0) return;
    uses(chunk);
    read_now_.push_back(chunk);
    uses_[row(chunk.buffer)].update(chunk.offset, chunk.offset + chunk.count, {},
                                    [&](const Use& use) { wait_for(use.writer); });
}

void Builder::writes(const Chunk& chunk) {
    if (chunk.count == 0) return;
    uses(chunk);
    written_now_.push_back(chunk);
    uses_[row(chunk.buffer)].update(chunk.offset, chunk.offset + chunk.count, {}, [&](const Use& use) {
        wait_for(use.writer);
        for (const std::uint32_t reader : use.readers) wait_for(reader);
    });
}

void Builder::end() {
    const auto index = static_cast<std::uint32_t>(schedule_.steps.size() - 1);
    if (!is_shared(schedule_.steps.back().kind)) wait_for(last_wait_);
    for (const Chunk& chunk : read_now_) {
        uses_[row(chunk.buffer)].update(chunk.offset, chunk.offset + chunk.count, {},
                                        [&](Use& use) { use.readers.push_back(index); });
    }
    for (const Chunk& chunk : written_now_)
        uses_[row(chunk.buffer)].set(chunk.offset, chunk.offset + chunk.count, {index, {}});
    std::ranges::sort(waits_);
    waits_.erase(std::unique(waits_.begin(), waits_.end()), waits_.end());
    std::erase(waits_, index);
    Step& step = schedule_.steps.back();
    step.operand_count = static_cast<std::uint32_t>(schedule_.operands.size()) - step.first_operand;
    step.first_after = static_cast<std::uint32_t>(schedule_.after.size());
    step.after_count = static_cast<std::uint32_t>(waits_.size());
    schedule_.after.insert(schedule_.after.end(), waits_.begin(), waits_.end());
}

// This rank has read all before. The release matters where the schedule before has not ended with the last of four:
// publications that no rank makes need no room.
void Builder::begin_turn_group() {
    schedule_.turn_group = true;
    next_round_ = (next_round_ + 3) / 4 * 4;
    release(next_round_);
}

Schedule Builder::finish() && {
    if (next_round_ > 0) release(next_round_);
    if (schedule_.in_place) {
        begin(StepKind::settle).round = next_round_;
        end();
    }
    schedule_.publications = next_round_;
    return std::move(schedule_);
}

}  // namespace tutti::schedule
