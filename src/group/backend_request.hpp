// The request that a backend or a transport's library gets for an operation of a group.
#pragma once

#include "operation/operation.hpp"
#include "operation/ranks.hpp"

#include <tutti/backend.hpp>
#include <tutti/process_group.hpp>

namespace tutti::detail {

/// `ranks`, `determinism`: those of its group.
BackendRequest request_of(const Operation& operation, const Ranks& ranks, Determinism determinism);

}  // namespace tutti::detail
