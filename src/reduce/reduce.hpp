// Element-wise reduction of n inputs in one pass. Knows no ranks.
//
// Threads: stateless; the kernels for this CPU are chosen once, on first use.
#pragma once

#include "core/assert.hpp"
#include "reduce/few.hpp"
#include "reduce/stores.hpp"
#include "tensor/user_operator.hpp"

#include <tutti/dtype.hpp>
#include <tutti/reduce_op.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::kernels {

/// An operator: a kind, or one of the caller.
struct Operator {
    Operator(ReduceOp::Kind which) : kind(which) {}  // NOLINT(google-explicit-constructor)
    Operator(ReduceOp::Kind which, const detail::UserOperator* of_user) : kind(which), user(of_user) {
        TUTTI_ASSERT((kind == ReduceOp::Kind::user) == (user != nullptr));
    }
    ReduceOp::Kind kind;
    const detail::UserOperator* user = nullptr;
};

/// dst[i] = inputs[0][i] op inputs[1][i] op …, strictly from left to right, for i < element_count.
/// `dst` may be exactly one of the inputs, otherwise it must not overlap them. No alignment is needed.
/// Low-precision types are accumulated in float32 over all inputs and rounded once (to nearest even).
/// avg: as sum; the sum is divided by `divisor` before it is rounded (integers: toward zero). Other kinds ignore
/// `divisor`. avg with divisor 1 is a plain sum, for partial results.
/// One input: a copy (divided, for avg). Precondition: is_supported(kind, dtype), kind != premul_sum, ≥ 1 input.
/// Of an operator of the caller elements are of its size, and `dtype` is ignored; throws OperatorFailed
/// (reduce/user.hpp).
void combine(Operator op, DType dtype, void* dst, std::span<const void* const> inputs, std::size_t element_count,
             std::uint64_t divisor = 1, Stores stores = Stores::cached);

/// The same for two inputs.
inline void combine_pair(Operator op, DType dtype, void* dst, const void* first, const void* second,
                         std::size_t element_count, std::uint64_t divisor) {
    const void* const both[] = {first, second};
    if (op.kind != ReduceOp::Kind::sum || !few::add(dtype, dst, std::span(both), element_count))
        combine(op, dtype, dst, both, element_count, divisor);
}

/// The type in which a low-precision type is accumulated (float32); the type itself for all others.
DType accumulation_dtype(DType dtype) noexcept;

/// dst[i] = src[i] * factor, dst in accumulation_dtype(dtype): the first step of premul_sum.
/// Integers: the product is computed in double and rounded toward zero, saturating. Callers reject bool.
void premultiply(DType dtype, void* dst, const void* src, double factor, std::size_t element_count);

/// dst[i] = src[i] rounded once; for equal types a copy. from must be accumulation_dtype(to).
void round_to(DType to, void* dst, DType from, const void* src, std::size_t element_count);

/// dst[i] = src[i], rounded to nearest even where `to` is narrower. dst and src do not overlap. Precondition: both are
/// real floating-point types, and just one of them is float32; so a value is never rounded twice.
void convert(DType to, void* dst, DType from, const void* src, std::size_t element_count);

/// The name of the CPU target that was chosen ("AVX3", …), for reports.
const char* target_name() noexcept;

}  // namespace tutti::kernels
