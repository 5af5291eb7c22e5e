// Coder: runs a schedule's steps that process codes of few bits, or the magnitudes from which scales are computed.
//
// Threads: one at a time.
#pragma once

#include "engine/run_buffers.hpp"
#include "quantize/quantize.hpp"
#include "schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::engine {

class Coder {
 public:
    /// `step`: a step of `schedule` that knows() accepts; `rank`: this rank.
    void run(const schedule::Schedule& schedule, const schedule::Step& step, const RunBuffers& buffers,
             const Operands& operands, int rank);
    static bool knows(schedule::StepKind kind) noexcept {
        return kind >= schedule::StepKind::encode && kind <= schedule::StepKind::largest;
    }

 private:
    struct Numbers {
        const void* at;
        DType dtype;
        float* residual;  ///< error of the first number; null: errors are not kept
    };
    struct Codes {
        std::byte* scales;
        std::byte* codes;
        quantize::Blocks run;
        quantize::Format format;
    };
    Codes codes_of(const schedule::Chunk& chunk) const;
    float* residual_of(const schedule::Chunk& source, std::uint64_t number) const;
    Numbers numbers_of(const schedule::Chunk& source, std::uint64_t number);
    void encode(const schedule::Step& step, std::span<const schedule::Operand> operands, int rank);
    void decode(const schedule::Step& step, const schedule::Chunk& source) const;
    void decode_add(const schedule::Step& step, std::span<const schedule::Operand> operands);
    void magnitudes(const schedule::Step& step, const schedule::Chunk& source);
    void largest(const schedule::Step& step, std::span<const schedule::Operand> operands) const;

    // Arguments of the step that runs.
    const schedule::Schedule* schedule_ = nullptr;
    const RunBuffers* buffers_ = nullptr;
    const Operands* operands_ = nullptr;
    std::vector<float> sources_, found_;
    std::vector<std::int32_t> whole_sums_;
};

}  // namespace tutti::engine
