// The steps of an execution that go through the staging area.
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
    if (step.kind == StepKind::meet) return meet(step);
    if (schedule_->in_place && step.operand_count > 0) return run_in_place(step);
    const std::uint64_t publication = base_ + step.round;
    switch (step.kind) {
        case StepKind::publish: return publish(step);
        case StepKind::read:
            if (!usable(step.peer, publication)) return false;
            if (step.target.count > 0)
                std::memcpy(address(step.target), slot_of(step.peer, publication) + step.slot_offset * element_bytes_,
                            bytes(step.target));
            return true;
        case StepKind::read_combine: return read_combine(step);
        case StepKind::wait:
            // An acquire: this rank's next accesses to the peer's buffers, and to what the peer has written in its own,
            // stay behind the steps that the signal stands for.
            return released_by(step.peer).load(std::memory_order_acquire) >= publication;
        case StepKind::signal:   // Behind all earlier steps of this rank: reads and writes of anyone's buffers.
        case StepKind::release:  // Behind all reads of those publications.
            context_.arena->control(context_.local_rank).released.store(publication, std::memory_order_release);
            context_.arena->ring_all_doorbells(context_.local_rank);
            return true;
        case StepKind::settle: return all_released(publication);
        default: return false;
    }
}

const std::atomic<std::uint64_t>& Execution::released_by(int peer) const {
    return context_.arena->control(context_.local_of[static_cast<std::size_t>(peer)]).released;
}

/// Whether every other rank of this host has released all publications before this one.
bool Execution::all_released(std::uint64_t publication) const {
    for (int r = 0; r < context_.arena->layout().ranks; ++r) {
        if (r != context_.local_rank &&  // an acquire: this rank's next writes stay behind the others' reads
            context_.arena->control(r).released.load(std::memory_order_acquire) < publication) {
            return false;
        }
    }
    return true;
}

bool Execution::publish(const Step& step) {
    transport::Arena& arena = *context_.arena;
    const std::uint64_t publication = base_ + step.round;
    if (!has_room(publication)) return false;
    const Operand* operands = schedule_->operands.data() + step.first_operand;
    std::byte* slot = arena.slot(context_.local_rank, publication);
    transport::StagingCopy* const copy = staging_copy(publication);
    // More than two ranks usually share cores: the time of one copy says little there, so trials are rare.
    using Trial = transport::StagingCopy::Trial;
    const Trial trial = arena.layout().ranks != 2                    ? Trial::now_and_then
                        : slot == arena.slot(context_.local_rank, 0) ? Trial::here
                                                                     : Trial::elsewhere;
    for (std::uint32_t i = 0; i < step.operand_count; ++i) {
        const std::size_t size = bytes(operands[i].chunk);
        transport::copy_staged(copy, slot, address(operands[i].chunk), size, trial);
        slot += size;
    }
    if (step.operand_count > 0) context_.read_last[arena.place(context_.local_rank, publication)] = false;
    tell_published(publication);
    return true;
}

void Execution::tell_published(std::uint64_t publication) {
    const transport::Arena& arena = *context_.arena;
    // Behind the slot's contents, and behind this rank's earlier writes into others' buffers.
    arena.control(context_.local_rank)
        .stamps[publication % arena.layout().slots]
        .store(publication + 1, std::memory_order_release);
    arena.ring_all_doorbells(context_.local_rank);
}

/// The publication of `peer` that this rank reads now.
std::byte* Execution::slot_of(int peer, std::uint64_t publication) const {
    const int local = context_.local_of[static_cast<std::size_t>(peer)];
    context_.read_last[context_.arena->place(local, publication)] = true;
    return context_.arena->slot(local, publication);
}

bool Execution::read_combine(const Step& step) {
    const std::uint64_t publication = base_ + step.round;
    const Operand* operands = schedule_->operands.data() + step.first_operand;
    for (std::uint32_t i = 0; i < step.operand_count; ++i) {
        if (operands[i].peer >= 0 && !usable(operands[i].peer, publication)) return false;
    }
    if (step.target.count == 0) return true;
    std::array<const void*, 16> few;
    std::vector<const void*> many;
    std::span<const void*> inputs(few.data(), std::min<std::size_t>(few.size(), step.operand_count));
    if (step.operand_count > few.size()) {
        many.resize(step.operand_count);
        inputs = many;
    }
    for (std::uint32_t i = 0; i < step.operand_count; ++i) {
        const Operand& operand = operands[i];
        inputs[i] = operand.peer < 0 ? address(operand.chunk)
                                     : slot_of(operand.peer, publication) + operand.slot_offset * element_bytes_;
    }
    kernels::combine(operands_.op, operands_.dtype, address(step.target), inputs, step.target.count,
                     step.finish ? operands_.divisor : 1);
    return true;
}

/// Whether no rank needs the former contents of this publication's slot any more.
bool Execution::has_room(std::uint64_t publication) const {
    const std::uint32_t slots = context_.arena->layout().slots;
    return publication < slots || all_released(publication - slots + 1);
}

}  // namespace tutti::engine
