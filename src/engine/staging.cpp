// The steps of an execution that go through the staging area.
#include "engine/execution.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace tutti::engine {

using schedule::Operand;
using schedule::Step;
using schedule::StepKind;

namespace {
// A result is written to several places in pieces that stay in the first-level cache.
constexpr std::size_t delivery_bytes = 8192;
}  // namespace

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
        case StepKind::release:
            // Behind all that was read of those publications.
            ground_.arena->control(ground_.local_rank).released.store(publication, std::memory_order_release);
            ground_.arena->ring_all_doorbells(ground_.local_rank);
            return true;
        case StepKind::settle: return all_released(publication);
        default: return false;
    }
}

/// Whether every other rank of this host has released all publications before this one.
bool Execution::all_released(std::uint64_t publication) const {
    for (int r = 0; r < ground_.arena->layout().ranks; ++r) {
        if (r != ground_.local_rank &&  // an acquire: what this rank writes next stays behind the others' reading
            ground_.arena->control(r).released.load(std::memory_order_acquire) < publication) {
            return false;
        }
    }
    return true;
}

bool Execution::publish(const Step& step) {
    transport::Arena& arena = *ground_.arena;
    const std::uint64_t publication = base_ + step.round;
    if (!has_room(publication)) return false;
    const Operand* operands = schedule_->operands.data() + step.first_operand;
    std::byte* slot = arena.slot(ground_.local_rank, publication);
    if (!std::exchange(in_slot_, false)) {  // else it is there
        transport::StagingCopy* const copy = staging_copy(publication);
        // More than two ranks usually share cores: what one copy takes says little there, so trials are seldom.
        using Trial = transport::StagingCopy::Trial;
        const Trial trial = arena.layout().ranks != 2                   ? Trial::now_and_then
                            : slot == arena.slot(ground_.local_rank, 0) ? Trial::here
                                                                        : Trial::elsewhere;
        for (std::uint32_t i = 0; i < step.operand_count; ++i) {
            const std::size_t size = bytes(operands[i].chunk);
            transport::copy_staged(copy, slot, address(operands[i].chunk), size, trial);
            slot += size;
        }
    }
    if (step.operand_count > 0) ground_.read_last[arena.place(ground_.local_rank, publication)] = false;
    tell_published(publication);
    return true;
}

void Execution::tell_published(std::uint64_t publication) {
    const transport::Arena& arena = *ground_.arena;
    // Behind what the slot holds, and behind what this rank has written into others' buffers before.
    arena.control(ground_.local_rank)
        .stamps[publication % arena.layout().slots]
        .store(publication + 1, std::memory_order_release);
    arena.ring_all_doorbells(ground_.local_rank);
}

/// What `peer` has published, which this rank reads now.
std::byte* Execution::slot_of(int peer, std::uint64_t publication) const {
    const int local = ground_.local_of[static_cast<std::size_t>(peer)];
    ground_.read_last[ground_.arena->place(local, publication)] = true;
    return ground_.arena->slot(local, publication);
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
    delivery_.clear();
    if (std::byte* const slot = slot_of_result(step)) {
        delivery_.push_back(slot);
        in_slot_ = true;
    }
    combine(step, address(step.target), inputs);
    return true;
}

/// The slot into which the next step copies the result of this one by ordinary stores, if there is room in it now:
/// copied piece by piece, the result comes from the first-level cache.
std::byte* Execution::slot_of_result(const Step& step) const {
    const auto next = static_cast<std::size_t>(&step - schedule_->steps.data()) + 1;
    if (next == schedule_->steps.size()) return nullptr;
    const Step& publication = schedule_->steps[next];
    if (publication.kind != StepKind::publish || publication.operand_count != 1 ||
        schedule_->operands[publication.first_operand].chunk != step.target || !has_room(base_ + publication.round))
        return nullptr;
    const transport::StagingCopy* const copy = staging_copy(base_ + publication.round);
    if (copy != nullptr && copy->streams()) return nullptr;
    return ground_.arena->slot(ground_.local_rank, base_ + publication.round);
}

/// Whether nobody needs any more what was in the slot of this publication.
bool Execution::has_room(std::uint64_t publication) const {
    const std::uint32_t slots = ground_.arena->layout().slots;
    return publication < slots || all_released(publication - slots + 1);
}

/// Writes the result to all places of delivery_ too.
void Execution::combine(const Step& step, std::byte* target, std::span<const void* const> inputs) {
    const std::uint64_t count = step.target.count, divisor = step.finish ? operands_.divisor : 1;
    if (delivery_.empty()) {
        kernels::combine(operands_.op, operands_.dtype, target, inputs, count, divisor);
        return;
    }
    std::vector<const void*> at(inputs.size());
    const std::uint64_t piece = delivery_bytes / element_bytes_;
    for (std::uint64_t done = 0; done < count; done += piece) {
        const std::uint64_t now = std::min(piece, count - done);
        const std::size_t offset = done * element_bytes_, bytes = now * element_bytes_;
        for (std::size_t i = 0; i < at.size(); ++i) at[i] = static_cast<const std::byte*>(inputs[i]) + offset;
        kernels::combine(operands_.op, operands_.dtype, target + offset, at, now, divisor);
        for (std::byte* place : delivery_) std::memcpy(place + offset, target + offset, bytes);
    }
}

}  // namespace tutti::engine
