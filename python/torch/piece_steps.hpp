// The local steps of pieces (pieces.hpp), with the values of eager code.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <tutti/tensor.hpp>

#include <functional>
#include <optional>
#include <span>
#include <string>

namespace tutti::torch {

/// What carries the step out, over tensors of `type`. `scalar`: in place of its second tensor. Throws InvalidArgument
/// for a step that nobody knows.
std::function<void(std::span<const ConstTensorView>, std::span<const TensorView>)> local_step(
    const std::string& name, at::ScalarType type, const std::optional<c10::Scalar>& scalar);
/// How many tensors it reads, beside a scalar.
std::size_t reads_of_local_step(const std::string& name, bool has_scalar);

}  // namespace tutti::torch
