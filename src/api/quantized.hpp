// Makes the operations of quantised collectives: checks, slices, and the parameters on which ranks must agree.
// Threads: as api/call.hpp.
#pragma once

#include "api/arguments.hpp"
#include "api/call.hpp"

#include <tutti/quantized.hpp>

namespace tutti::api {

/// Error feedback: memory that the operation reads, writes and keeps alive.
struct Residuals {
    Tensor own;     ///< float32, one number for each element of the input
    Tensor result;  ///< float32, one number for each element of this rank's slice
};

#define TUTTI_QUANTIZED_FUNCTION(name, ...) \
    PreparedOperation name(TensorView output, ConstTensorView input, const QuantizedOptions& options);
#include <tutti/collectives.def>
PreparedOperation quantized_all_reduce(TensorView output, ConstTensorView input, const QuantizedOptions& options,
                                       const Residuals* residuals);

/// Elements of this rank's slice of an all_reduce of `input`.
std::uint64_t slice_elements(const ConstTensorView& input, const QuantizedOptions& options);

}  // namespace tutti::api
