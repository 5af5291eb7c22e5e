// at::Tensor as tutti's views, and PyTorch's operators as tutti's.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <ATen/core/Tensor.h>

#include <tutti/distributed.hpp>

#include <vector>

namespace tutti::torch {

using Tensors = std::vector<at::Tensor>;

/// The use of the elements: moved as they are (any type), or computed with (tutti's 17).
enum class Use { moved, combined };

/// The view lives no longer than the tensor. `operation` and `argument` are for messages.
/// Throws c10::Error for a tensor that is not in host memory, not strided, lazily conjugated or negated, or, where
/// values are combined, of a type that tutti does not know.
TensorView view_of(const at::Tensor& tensor, const char* operation, const char* argument, Use use = Use::moved);
TensorList views_of(const Tensors& tensors, const char* operation, const char* argument, Use use = Use::moved);
ConstTensorList const_views_of(const Tensors& tensors, const char* operation, const char* argument,
                               Use use = Use::moved);
/// Keeps the dimensions also of a tensor in one piece, for operations that split along the first.
TensorView shaped_view_of(const at::Tensor& tensor, const char* operation, const char* argument);

ReduceOp operator_of(const c10d::ReduceOp& op, const char* operation);
/// Whether `op` is defined for the type; throws a c10::Error that names both otherwise.
void check_supported(ReduceOp op, const at::Tensor& tensor, const char* operation);

}  // namespace tutti::torch
