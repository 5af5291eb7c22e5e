#include "engine/coder.hpp"

#include "core/assert.hpp"
#include "reduce/reduce.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

namespace tutti::engine {

using quantize::Blocks;
using quantize::Into;
using schedule::Chunk;
using schedule::Operand;
using schedule::Step;
using schedule::StepKind;

namespace {

float* floats(std::byte* at) {
    return reinterpret_cast<float*>(at);
}

// Magnitudes are positive, or NaN: their bits order as they do, and NaN comes last.
float larger_magnitude(float a, float b) {
    return std::bit_cast<float>(std::max(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)));
}

// Whether the elements are results, which are encoded a second time, and not the caller's.
bool is_result(const Chunk& source) {
    return schedule::row(source.buffer) >= schedule::row(schedule::Buffer::scratch);
}

}  // namespace

void Coder::run(const schedule::Schedule& schedule, const Step& step, const RunBuffers& buffers,
                const Operands& operands, int rank) {
    TUTTI_ASSERT(knows(step.kind));
    TUTTI_ASSERT(rank >= 0);
    schedule_ = &schedule;
    buffers_ = &buffers;
    operands_ = &operands;
    const auto sources = operands_of(schedule, step);
    TUTTI_ASSERT(!sources.empty());
    switch (step.kind) {
        case StepKind::encode: return encode(step, sources, rank);
        case StepKind::decode: return decode(step, sources[0].chunk);
        case StepKind::decode_add: return decode_add(step, sources);
        case StepKind::magnitudes: return magnitudes(step, sources[0].chunk);
        case StepKind::largest: return largest(step, sources);
        default: return;
    }
}

Coder::Codes Coder::codes_of(const Chunk& chunk) const {
    TUTTI_ASSERT(schedule_->of(chunk.buffer).codes.has_value());
    const schedule::CodeForm& form = *schedule_->of(chunk.buffer).codes;
    std::byte* at = buffers_->address(chunk);
    return {at, at + form.scale_bytes(chunk.count), form.run(chunk.count), form.format};
}

float* Coder::residual_of(const Chunk& source, std::uint64_t number) const {
    TUTTI_ASSERT(operands_ != nullptr);
    const Coding* coding = operands_->coding;
    if (coding == nullptr) return nullptr;
    if (!is_result(source)) return coding->residual == nullptr ? nullptr : coding->residual + source.offset;
    TUTTI_ASSERT(coding->result_residual == nullptr || number >= coding->first_result);
    return coding->result_residual == nullptr ? nullptr : coding->result_residual + (number - coding->first_result);
}

// The values to encode, with the rounding errors of earlier calls added. They stay until the next call of this
// function.
Coder::Numbers Coder::numbers_of(const Chunk& source, std::uint64_t number) {
    TUTTI_ASSERT(!schedule_->of(source.buffer).codes);
    Numbers numbers{buffers_->address(source), buffers_->place_of(source).dtype, residual_of(source, number)};
    if (numbers.residual == nullptr) return numbers;
    sources_.resize(std::max<std::size_t>(sources_.size(), source.count));
    kernels::premultiply(numbers.dtype, sources_.data(), numbers.at, 1.0, source.count);
    for (std::size_t i = 0; i < source.count; ++i) sources_[i] += numbers.residual[i];
    return {sources_.data(), DType::float32, numbers.residual};
}

void Coder::encode(const Step& step, std::span<const Operand> operands, int rank) {
    TUTTI_ASSERT(!operands.empty() && operands.size() <= 2);
    TUTTI_ASSERT(operands[0].chunk.count == step.target.count);
    const Chunk& source = operands[0].chunk;
    const Numbers numbers = numbers_of(source, step.number);
    const Codes to = codes_of(step.target);
    TUTTI_ASSERT(to.run.count == source.count);
    const Coding* coding = operands_->coding;
    float* scales = floats(to.scales);
    auto kind = quantize::Scales::found;
    if (step.given) {
        kind = quantize::Scales::given;
        scales[0] = coding != nullptr ? coding->scale.value_or(1) : 1;
    } else if (operands.size() > 1) {
        kind = quantize::Scales::before;
        const float* found = floats(buffers_->address(operands[1].chunk));
        for (std::size_t i = 0; i < to.run.blocks(); ++i) scales[i] = quantize::scale_of(to.format, found[i]);
    }
    std::optional<quantize::Noise> noise;
    if (coding != nullptr && coding->seed)
        noise = {*coding->seed, 2 * static_cast<std::uint64_t>(rank) + (is_result(source) ? 1 : 0), step.number};
    quantize::encode(to.format, numbers.dtype, numbers.at, to.run, kind, scales, to.codes, noise ? &*noise : nullptr);
    if (numbers.residual == nullptr) return;
    // What the codes lose. Of a block that is not finite, nothing: it would never be finite again.
    std::copy_n(sources_.data(), to.run.count, numbers.residual);
    quantize::add(to.format, to.codes, scales, to.run, Into::difference, numbers.residual);
    to.run.for_each_block(to.format, [&](std::size_t i, std::size_t at, std::size_t count, std::size_t /*code*/) {
        if (std::isnan(scales[i])) std::fill_n(numbers.residual + at, count, 0.0F);
    });
}

void Coder::decode(const Step& step, const Chunk& source) const {
    TUTTI_ASSERT(source.count == step.target.count);
    const Codes from = codes_of(source);
    quantize::decode(from.format, from.codes, floats(from.scales), from.run, buffers_->place_of(step.target).dtype,
                     buffers_->address(step.target));
}

void Coder::decode_add(const Step& step, std::span<const Operand> operands) {
    TUTTI_ASSERT(!operands.empty());
    TUTTI_ASSERT(operands[0].chunk.count == step.target.count);
    // The caller's memory may lie at any address.
    std::byte* const target = buffers_->address(step.target);
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(target) % alignof(float) == 0;
    if (!is_aligned) sources_.resize(std::max<std::size_t>(sources_.size(), step.target.count));
    float* const sums = is_aligned ? floats(target) : sources_.data();
    const Codes first = codes_of(operands[0].chunk);
    const bool exact = step.exact && quantize::is_whole(first.format);
    if (exact) whole_sums_.resize(std::max<std::size_t>(whole_sums_.size(), first.run.count));
    Into into = Into::fresh;
    for (const Operand& operand : operands) {
        const Codes from = codes_of(operand.chunk);
        if (exact)
            quantize::add_codes(from.format, from.codes, from.run, into, whole_sums_.data());
        else
            quantize::add(from.format, from.codes, floats(from.scales), from.run, into, sums);
        into = Into::sum;
    }
    if (exact) {
        const auto block = [&](std::size_t i, std::size_t at, std::size_t count, std::size_t /*code*/) {
            float scale = 0;  // all ranks have it, or NaN
            for (const Operand& operand : operands)
                scale = larger_magnitude(scale, floats(codes_of(operand.chunk).scales)[i]);
            for (std::size_t k = at; k < at + count; ++k) sums[k] = static_cast<float>(whole_sums_[k]) * scale;
        };
        first.run.for_each_block(first.format, block);
    }
    if (step.finish && operands_->divisor > 1) {
        const auto divisor = static_cast<float>(operands_->divisor);
        for (std::size_t i = 0; i < first.run.count; ++i) sums[i] /= divisor;
    }
    if (!is_aligned) std::memcpy(target, sums, first.run.count * sizeof(float));
}

void Coder::magnitudes(const Step& step, const Chunk& source) {
    TUTTI_ASSERT(step.block > 0);
    const Numbers numbers = numbers_of(source, source.offset);
    float* to = floats(buffers_->address(step.target));
    const Blocks run{source.count, step.block, step.block};
    found_.resize(run.blocks());
    quantize::find_magnitudes(numbers.dtype, numbers.at, run, found_.data());
    TUTTI_ASSERT(found_.size() == step.target.count);
    for (std::size_t i = 0; i < found_.size(); ++i) to[i] = step.joins ? larger_magnitude(to[i], found_[i]) : found_[i];
}

void Coder::largest(const Step& step, std::span<const Operand> operands) const {
    TUTTI_ASSERT(!operands.empty());
    float* to = floats(buffers_->address(step.target));
    for (std::size_t i = 0; i < step.target.count; ++i) {
        float most = 0;
        for (const Operand& operand : operands)
            most = larger_magnitude(most, floats(buffers_->address(operand.chunk))[i]);
        to[i] = most;
    }
}

}  // namespace tutti::engine
