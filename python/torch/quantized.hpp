// Python's options of a quantised collective, and QuantizedReducer for one group of PyTorch's.
#pragma once

#include <ATen/core/Tensor.h>

#include <tutti/quantized.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::torch {

/// QuantizedOptions by their names.
struct Quantization {
    std::string type;
    std::int64_t block = 256;
    std::string scales;
    std::optional<double> scale;
    bool quantize_results = true;
    std::string rounding;
    std::uint64_t seed = 0;
    bool averages = false;
    std::vector<std::int64_t> counts;
};
/// Throws ValueError for unknown names.
QuantizedOptions options_of(const Quantization& how);

/// A program makes it before its group is known: a hook gets that with its first bucket. Threads: one at a time.
class TorchQuantizedReducer {
 public:
    explicit TorchQuantizedReducer(const Quantization& how) : options_(options_of(how)) {}
    QuantizedReducer& in(const ProcessGroup& group);
    at::Tensor residual(std::int64_t bucket) const;
    void reset() { reducer_.reset(); }

 private:
    QuantizedOptions options_;
    std::optional<QuantizedReducer> reducer_;
};

}  // namespace tutti::torch
