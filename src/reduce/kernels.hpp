// The table of kernels: one per operator and element type.
#pragma once

#include "reduce/reduce.hpp"

namespace tutti::reduce {

struct Call {
    void* dst;
    const void* const* inputs;
    std::size_t input_count;
    std::size_t element_count;
    std::uint64_t divisor;  ///< of sum; 1: none
    bool streaming;
};
using Kernel = void (*)(const Call&);

/// The kernel for this CPU. avg is sum with a divisor.
Kernel find_kernel(ReduceOp::Kind kind, DType dtype) noexcept;

}  // namespace tutti::reduce
