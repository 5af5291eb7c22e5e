// The tables of kernels behind reduce.hpp: for each operator and element type the best code for this CPU.
#pragma once

#include "reduce/stores.hpp"

#include <tutti/dtype.hpp>
#include <tutti/reduce_op.hpp>

#include <cstddef>
#include <cstdint>

namespace tutti::kernels {

/// One call of combine(). avg is sum with a divisor.
struct Call {
    void* dst;
    const void* const* inputs;
    std::size_t input_count;
    std::size_t element_count;
    std::uint64_t divisor;  ///< of the result; 1: none
    Stores stores;
};
using CombineKernel = void (*)(const Call&);

/// dst[i] = src[i] * factor in the type of accumulation.
using ScaleKernel = void (*)(void* dst, const void* src, double factor, std::size_t element_count);
/// dst[i] = src[i] rounded to a low-precision type.
using RoundKernel = void (*)(void* dst, const void* src, std::size_t element_count);

// Null where the operator is not defined for the type, or the type belongs to another family.
CombineKernel find_float_kernel(ReduceOp::Kind kind, DType dtype) noexcept;          // float32, float64, complex
CombineKernel find_low_precision_kernel(ReduceOp::Kind kind, DType dtype) noexcept;  // 16 and 8 bits
CombineKernel find_integer_kernel(ReduceOp::Kind kind, DType dtype) noexcept;        // integers and bool
ScaleKernel find_float_scale_kernel(DType dtype) noexcept;
ScaleKernel find_low_precision_scale_kernel(DType dtype) noexcept;
RoundKernel find_round_kernel(DType dtype) noexcept;

/// has_…: whether the CPU can round to bfloat16 (AVX512_BF16). takes_…: whether kernels that are looked up from now on
/// use this instruction; only tests change it, while no other thread looks up a kernel.
bool has_bfloat_instruction() noexcept;
bool& takes_bfloat_instruction() noexcept;
/// The same for CPUs with AVX-512 that convert float16 in 256 bits at a time (Zen 4): there the AVX2 kernels take only
/// four fifths of the time.
bool halves_by_avx2_are_quicker() noexcept;
bool& takes_halves_by_avx2() noexcept;

}  // namespace tutti::kernels
