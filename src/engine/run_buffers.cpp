#include "engine/run_buffers.hpp"

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
    const auto& buffers = schedule.buffers;
    const std::size_t first_scratch = schedule::row(Buffer::scratch);
    const auto dtype_of = [&](std::size_t buffer) { return buffers[buffer].dtype.value_or(operands.dtype); };
    std::size_t needed = 0;
    for (std::size_t b = first_scratch; b < buffers.size(); ++b)
        needed += aligned(buffers[b].count * size_of(dtype_of(b)));
    if (needed > scratch_bytes_) {
        scratch_ = std::make_unique_for_overwrite<std::byte[]>(needed);
        scratch_bytes_ = needed;
    }
    places_.resize(buffers.size());
    std::byte* at = scratch_.get();
    for (std::size_t b = first_scratch; b < buffers.size(); ++b) {
        const std::size_t element_bytes = size_of(dtype_of(b));
        places_[b] = {at, element_bytes, dtype_of(b)};
        at += aligned(buffers[b].count * element_bytes);
    }
    const std::size_t element_bytes = size_of(operands.dtype);
    places_[schedule::row(Buffer::input)] = {operands.input, element_bytes, operands.dtype};
    places_[schedule::row(Buffer::output)] = {operands.output, element_bytes, operands.dtype};
}

}  // namespace tutti::engine
