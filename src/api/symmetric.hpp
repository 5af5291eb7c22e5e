// Symmetric memory for the library's own use, of which each host may have another size.
//
// Threads: as for collectives.
#pragma once

#include "core/deadline.hpp"
#include "group/group.hpp"

#include <tutti/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti::api {

/// empty_symmetric() of `bytes` bytes, equal on the ranks of a host. `count`: what all ranks of the group agree on,
/// beside `dtype`.
Tensor symmetric_bytes(const std::shared_ptr<detail::Group>& group, std::size_t bytes, DType dtype, std::uint64_t count,
                       const Deadline& deadline);

}  // namespace tutti::api
