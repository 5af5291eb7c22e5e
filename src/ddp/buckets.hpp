// Buckets: the gradients that one all_reduce averages together.
//
// Threads: pure functions.
#pragma once

#include <tutti/dtype.hpp>
#include <tutti/tensor.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::ddp {

struct Gradient {
    DType dtype;
    std::size_t bytes;
    Device device{};
};

/// Bytes at which a bucket is closed.
struct BucketCaps {
    std::size_t first;  ///< of the first one of each dtype and device
    std::size_t others;
};
inline constexpr std::size_t first_bucket_cap_bytes = 1 << 20;

/// By bucket, in the order in which they are sent: indices of gradients.
using Buckets = std::vector<std::vector<std::size_t>>;

/// `order`: indices of `gradients`, as they are expected to become ready. A bucket has one dtype and one device, and
/// takes gradients until it has reached its cap. It is sent when its last gradient is ready, so buckets stand in the
/// order of those.
Buckets assign_buckets(std::span<const Gradient> gradients, std::span<const std::size_t> order, BucketCaps caps);

}  // namespace tutti::ddp
