// Reductions with an operator of the caller.
//
// Threads: any; stateless.
#pragma once

#include "tensor/user_operator.hpp"

#include <cstddef>
#include <span>
#include <stdexcept>

namespace tutti::kernels {

/// The caller's function has thrown.
class OperatorFailed : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

/// dst[i] = inputs[0][i] op inputs[1][i] op …, strictly from left to right, for i < element_count. `dst` may be exactly
/// one of the inputs, otherwise it must not overlap them. The function gets aligned arrays, whatever these are:
/// unaligned ones are copied in blocks. Throws OperatorFailed; `dst` is unspecified then.
void combine_by_user(const detail::UserOperator& op, void* dst, std::span<const void* const> inputs,
                     std::size_t element_count);

}  // namespace tutti::kernels
