// Buckets: groups of gradients; one all_reduce averages a bucket.
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

/// The size in bytes at which a bucket is closed.
struct BucketCaps {
    std::size_t first;  ///< for the first bucket of each dtype and device
    std::size_t others;
};
inline constexpr std::size_t first_bucket_cap_bytes = 1 << 20;

/// For each bucket, in sending order, the indices of its gradients.
using Buckets = std::vector<std::vector<std::size_t>>;

/// `order`: indices of `gradients`, in the order in which they are expected to become ready. A bucket has one dtype and
/// one device, and takes gradients until it has reached its cap. It is sent when its last gradient is ready, so buckets
/// are ordered by their last gradients.
Buckets assign_buckets(std::span<const Gradient> gradients, std::span<const std::size_t> order, BucketCaps caps);

}  // namespace tutti::ddp
