// tutti explain quantized_all_reduce: how many bytes travel, how long rounding takes on this machine, and when
// quantising is faster.
#pragma once

#include "algorithm/tuning.hpp"

#include <tutti/dtype.hpp>
#include <tutti/quantized.hpp>

#include <cstdint>
#include <string>

namespace tutti::cli {

struct QuantizedQuestion {
    std::uint64_t bytes = 0;  ///< of the tensor
    DType dtype = DType::float16;
    int ranks = 2;
    bool one_host = true;
    QuantizedType type = QuantizedType::int8;
    std::uint64_t block = 256;
    bool quantize_results = true;
    double network_gbps = 0;  ///< GB/s of a rank in each direction; 0: as measured
};

/// Measures the kernels, for some milliseconds. Throws InvalidArgument for a call that cannot be quantised.
std::string explain_quantized(const QuantizedQuestion& question, const algorithm::CostModel& costs,
                              const std::string& source);

}  // namespace tutti::cli
