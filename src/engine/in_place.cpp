// The steps of an execution in place, in buffers that the ranks of a host have named to each other (PeerBuffers).
#include "core/assert.hpp"
#include "engine/execution.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace tutti::engine {

using schedule::Operand;
using schedule::Step;
using schedule::StepKind;

namespace {

// A result is written to several places in pieces that stay in the first-level cache.
constexpr std::size_t piece_bytes = 8192;

}  // namespace

bool Execution::run_in_place(const Step& step) {
    TUTTI_ASSERT(schedule_->in_place && step.operand_count > 0);
    const Operand& source = schedule_->operands[step.first_operand];
    const auto own = [this](const schedule::Chunk& chunk) {
        return std::span(buffers_.address(chunk), buffers_.bytes(chunk));
    };
    switch (step.kind) {
        case StepKind::get: return peers_.get(source.peer, source.chunk, own(step.target));
        case StepKind::put: return peers_.put(step.peer, step.target, own(source.chunk));
        case StepKind::read_combine: combine_in_place(step); return true;
        default: return false;
    }
}

/// All buffers are mapped here.
void Execution::combine_in_place(const Step& step) {
    TUTTI_ASSERT(schedule_->maps || (step.peer < 0 && !step.everywhere));
    TUTTI_ASSERT(step.target.count > 0);
    inputs_.clear();
    for (std::uint32_t i = 0; i < step.operand_count; ++i) {
        const Operand& operand = schedule_->operands[step.first_operand + i];
        inputs_.push_back(operand.peer < 0 ? buffers_.address(operand.chunk)
                                           : peers_.mapped(operand.peer, operand.chunk));
    }
    std::byte* const target = step.peer < 0 ? buffers_.address(step.target) : peers_.mapped(step.peer, step.target);
    std::vector<std::byte*>& others = other_targets_;
    others.clear();
    if (step.everywhere)
        context_.for_each_neighbour(
            [&](int rank, int /*local*/) { others.push_back(peers_.mapped(rank, step.target)); });
    // With several targets in pieces, which the copies find in the first-level cache.
    const std::size_t element_bytes = operands_.element_bytes();
    std::vector<const void*>& at = inputs_of_piece_;
    at.resize(inputs_.size());
    const std::uint64_t piece =
        others.empty() ? step.target.count : std::max<std::size_t>(1, piece_bytes / element_bytes);
    TUTTI_ASSERT(piece > 0);
    for (std::uint64_t done = 0; done < step.target.count; done += piece) {
        const std::uint64_t now = std::min(piece, step.target.count - done);
        const std::size_t offset = done * element_bytes;
        for (std::size_t i = 0; i < at.size(); ++i) at[i] = static_cast<const std::byte*>(inputs_[i]) + offset;
        combine(step, operands_.dtype, target + offset, at, now);
        for (std::byte* other : others) std::memcpy(other + offset, target + offset, now * element_bytes);
    }
}

}  // namespace tutti::engine
