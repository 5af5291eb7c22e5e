#include "engine/run_buffers.hpp"

#include "core/assert.hpp"

#include <utility>

namespace tutti::engine {
namespace {

using schedule::Buffer;

// Between the scratch buffers of different types: a cache line.
constexpr std::size_t scratch_alignment = 64;

std::size_t aligned(std::size_t bytes) {
    return (bytes + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
}

}  // namespace

void RunBuffers::place(const schedule::Schedule& schedule, const Operands& operands) {
    TUTTI_ASSERT(schedule.buffers.size() > schedule::row(Buffer::scratch));
    const auto& buffers = schedule.buffers;
    const std::size_t first_scratch = schedule::row(Buffer::scratch);
    const auto dtype_of = [&](std::size_t buffer) { return buffers[buffer].dtype.value_or(operands.dtype); };
    const auto element_bytes_of = [&](std::size_t buffer) {
        const auto& own = buffers[buffer].dtype;
        return own ? size_of(*own) : operands.element_bytes();
    };
    const auto bytes_of = [&](std::size_t buffer) {
        const auto& [dtype, count, used_end, codes] = buffers[buffer];
        return aligned(codes ? codes->place(count + codes->block - 1) : count * element_bytes_of(buffer));
    };
    std::size_t needed = 0;
    for (std::size_t b = first_scratch; b < buffers.size(); ++b) needed += bytes_of(b);
    if (needed > scratch_bytes_) {
        scratch_ = std::make_unique_for_overwrite<std::byte[]>(needed);
        scratch_bytes_ = needed;
    }
    places_.resize(buffers.size());
    std::byte* at = scratch_.get();
    for (std::size_t b = first_scratch; b < buffers.size(); ++b) {
        places_[b] = {at, element_bytes_of(b), dtype_of(b), buffers[b].codes};
        at += bytes_of(b);
    }
    TUTTI_ASSERT(at == nullptr || static_cast<std::size_t>(at - scratch_.get()) == needed);
    TUTTI_ASSERT(needed <= scratch_bytes_);
    for (const auto& [buffer, base] : {std::pair(Buffer::input, operands.input), {Buffer::output, operands.output}}) {
        const std::size_t row = schedule::row(buffer);
        places_[row] = {base, element_bytes_of(row), dtype_of(row), {}};
    }
}

}  // namespace tutti::engine
