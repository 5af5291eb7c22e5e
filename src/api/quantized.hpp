// Building quantised collectives: checks, slices, the terms on which ranks must agree. As api/call for the others.
#pragma once

#include "api/arguments.hpp"
#include "api/call.hpp"

#include <tutti/quantized.hpp>

namespace tutti::api {

/// Error feedback: memory that the operation reads and writes, and keeps alive.
struct Residuals {
    Tensor own;     ///< float32, as many as the input has elements
    Tensor result;  ///< float32, as many as this rank's slice has
};

PreparedOperation quantized_all_reduce(TensorView output, ConstTensorView input, const QuantizedOptions& options,
                                       const Residuals* residuals = nullptr);
PreparedOperation quantized_reduce_scatter(TensorView output, ConstTensorView input, const QuantizedOptions& options);
PreparedOperation quantized_all_gather(TensorView output, ConstTensorView input, const QuantizedOptions& options);

/// Elements of this rank's slice of an all_reduce of `input`.
std::uint64_t slice_elements(const ConstTensorView& input, const QuantizedOptions& options);

}  // namespace tutti::api
