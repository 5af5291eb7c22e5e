// Makes the request by which a backend, or a transport's library, gets an operation of a group.
#pragma once

#include "operation/operation.hpp"
#include "operation/ranks.hpp"

#include <tutti/backend.hpp>
#include <tutti/process_group.hpp>

namespace tutti::detail {

/// `ranks`, `determinism`: those of the operation's group.
BackendRequest request_of(const Operation& operation, const Ranks& ranks, Determinism determinism);

}  // namespace tutti::detail
