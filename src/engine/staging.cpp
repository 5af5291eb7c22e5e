// The steps of an execution that go through the staging area.
#include "core/assert.hpp"
#include "engine/execution.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

namespace tutti::engine {

using schedule::Operand;
using schedule::Step;
using schedule::StepKind;

bool Execution::run_shared(const Step& step) {
    TUTTI_ASSERT(schedule::is_shared(step.kind));
    TUTTI_ASSERT(context_.arena != nullptr);
    if (step.kind == StepKind::meet) return peers_.meet(step);
    if (schedule_->in_place && step.operand_count > 0) return run_in_place(step);
    const std::uint64_t publication = publications_.of(step);
    switch (step.kind) {
        case StepKind::publish: return publish(step);
        case StepKind::read:
            if (!publications_.is_usable(step.peer, publication)) return false;
            if (step.target.count > 0)
                TUTTI_ASSERT(step.slot_offset * operands_.element_bytes() + buffers_.bytes(step.target) <=
                             context_.arena->layout().slot_bytes);
            std::memcpy(buffers_.address(step.target),
                        publications_.read(step.peer, publication) + step.slot_offset * operands_.element_bytes(),
                        buffers_.bytes(step.target));
            return true;
        case StepKind::read_combine: return read_combine(step);
        case StepKind::wait:
            // An acquire: this rank's next accesses to the peer's buffers, and to what the peer has written in its own,
            // stay behind the steps that the signal stands for.
            return publications_.released_by(step.peer).load(std::memory_order_acquire) >= publication;
        case StepKind::signal:   // Behind all earlier steps of this rank: reads and writes of anyone's buffers.
        case StepKind::release:  // Behind all reads of those publications.
            publications_.release(publication);
            return true;
        case StepKind::settle: return publications_.all_released(publication);
        default: return false;
    }
}

bool Execution::publish(const Step& step) {
    TUTTI_ASSERT(step.kind == StepKind::publish && !schedule_->in_place);
    const transport::Arena& arena = *context_.arena;
    const std::uint64_t publication = publications_.of(step);
    if (!publications_.has_room(publication)) return false;
    const Operand* operands = schedule_->operands.data() + step.first_operand;
    std::byte* slot = publications_.own_slot(publication);
    transport::StagingCopy* const copy = publications_.copy_for(publication);
    // More than two ranks usually share cores: the time of one copy says little there, so trials are rare.
    using Trial = transport::StagingCopy::Trial;
    const Trial trial = arena.layout().ranks != 2                    ? Trial::now_and_then
                        : slot == arena.slot(context_.local_rank, 0) ? Trial::here
                                                                     : Trial::elsewhere;
    for (std::uint32_t i = 0; i < step.operand_count; ++i) {
        const std::size_t size = buffers_.bytes(operands[i].chunk);
        transport::copy_staged(copy, slot, buffers_.address(operands[i].chunk), size, trial);
        slot += size;
        TUTTI_ASSERT(slot <= publications_.own_slot(publication) + arena.layout().slot_bytes);
    }
    if (step.operand_count > 0) publications_.note_written(publication);
    publications_.tell(publication);
    return true;
}

bool Execution::read_combine(const Step& step) {
    TUTTI_ASSERT(step.kind == StepKind::read_combine && step.operand_count > 0);
    const std::uint64_t publication = publications_.of(step);
    const Operand* operands = schedule_->operands.data() + step.first_operand;
    for (std::uint32_t i = 0; i < step.operand_count; ++i) {
        if (operands[i].peer >= 0 && !publications_.is_usable(operands[i].peer, publication)) return false;
    }
    if (step.target.count == 0) return true;
    const std::size_t element_bytes = operands_.element_bytes();
    std::array<const void*, 16> few;
    std::vector<const void*> many;
    std::span<const void*> inputs(few.data(), std::min<std::size_t>(few.size(), step.operand_count));
    if (step.operand_count > few.size()) {
        many.resize(step.operand_count);
        inputs = many;
    }
    for (std::uint32_t i = 0; i < step.operand_count; ++i) {
        const Operand& operand = operands[i];
        inputs[i] = operand.peer < 0
                        ? buffers_.address(operand.chunk)
                        : publications_.read(operand.peer, publication) + operand.slot_offset * element_bytes;
    }
    TUTTI_ASSERT(inputs.size() == step.operand_count);
    combine(step, operands_.dtype, buffers_.address(step.target), inputs, step.target.count);
    return true;
}

}  // namespace tutti::engine
