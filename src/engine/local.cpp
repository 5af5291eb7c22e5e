// The steps of an execution inside one rank.
#include "core/assert.hpp"
#include "core/biased_mutex.hpp"
#include "core/stream_copy.hpp"
#include "engine/execution.hpp"
#include "reduce/user.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::engine {

using schedule::Operand;
using schedule::Step;
using schedule::StepKind;

namespace {

// The cache that cores usually share; virtual machines report any size for it.
constexpr std::size_t last_level_cache = std::size_t{32} << 20;

// Where the inputs and outputs of all ranks of this host exceed the last cache, to write through it would only mean to
// fetch each line before writing it.
void copy_local(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t whole_bytes, int ranks) {
    TUTTI_ASSERT(ranks > 0);
    TUTTI_ASSERT(bytes == 0 || (to != nullptr && from != nullptr));
    const bool apart = to + bytes <= from || from + bytes <= to;
    if (apart && whole_bytes >= last_level_cache / (2 * static_cast<std::size_t>(ranks)))
        stream_copy(to, from, bytes);
    else
        std::memmove(to, from, bytes);
}
}  // namespace

void Execution::run_local(const Step& step) {
    TUTTI_ASSERT(schedule::is_local(step.kind));
    TUTTI_ASSERT(step.operand_count > 0 && step.target.count > 0);
    const Operand* operands = schedule_->operands.data() + step.first_operand;
    const RunBuffers::Place& target = buffers_.place_of(step.target);
    if (step.kind == StepKind::copy) {
        const int ranks = context_.arena != nullptr ? context_.arena->layout().ranks : 1;
        copy_local(buffers_.address(step.target), buffers_.address(operands[0].chunk), buffers_.bytes(step.target),
                   step.whole * target.element_bytes, ranks);
    } else if (step.kind == StepKind::combine) {
        inputs_.clear();
        for (std::uint32_t i = 0; i < step.operand_count; ++i) inputs_.push_back(buffers_.address(operands[i].chunk));
        combine(step, target.dtype, buffers_.address(step.target), inputs_, step.target.count);
    } else if (step.kind == StepKind::call) {
        call(step);
    } else if (Coder::knows(step.kind)) {
        coder_.run(*schedule_, step, buffers_, operands_, context_.rank);
    } else {
        kernels::convert(target.dtype, buffers_.address(step.target), buffers_.place_of(operands[0].chunk).dtype,
                         buffers_.address(operands[0].chunk), step.target.count);
    }
}

void Execution::combine(const Step& step, DType dtype, void* target, std::span<const void* const> inputs,
                        std::size_t count) const {
    try {
        kernels::combine({operands_.op, operands_.user}, dtype, target, inputs, count,
                         step.finish ? operands_.divisor : 1);
    } catch (const kernels::OperatorFailed& error) {
        throw StepFailed(error.what());
    }
}

void Execution::call(const Step& step) const {
    const std::string& name = schedule_->functions[step.function];
    const auto& function = functions_[step.function];
    const Extents shape = Extents::of(static_cast<std::int64_t>(step.target.count));
    std::vector<ConstTensorView> sources;
    for (const Operand& operand : operands_of(*schedule_, step))
        sources.emplace_back(buffers_.address(operand.chunk), shape, buffers_.place_of(operand.chunk).dtype);
    const auto fail = [&](std::string_view why) {
        throw StepFailed(fmt::format("the function \"{}\", which algorithm {} calls, has failed: {}", name,
                                     schedule_->algorithm, why));
    };
    if (function == nullptr) fail("this process has none of that name");
    try {
        const BiasedMutex::UsersCode scope;
        (*function)(TensorView(buffers_.address(step.target), shape, buffers_.place_of(step.target).dtype), sources);
    } catch (const std::exception& error) {
        fail(error.what());
    } catch (const abi::__forced_unwind&) {  // the thread ends
        throw;
    } catch (...) {
        fail("it has thrown an object that is no std::exception");
    }
}

}  // namespace tutti::engine
