// The checks of the debug level DETAIL before a collective (tutti/debug.hpp).
#pragma once

#include "api/call.hpp"
#include "core/debug_level.hpp"

#include <memory>
#include <span>

namespace tutti::api {

inline bool in_detail() noexcept {
    return debug_level_is_detail();
}
/// Waits until all ranks of the group have come, and compares the calls that they are about to make. If the calls
/// differ, throws CollectiveMismatch on all of these ranks. Also throws the errors of monitored_barrier.
void verify(const Call& call);
/// As above, for a function that makes several operations from its arguments; compares all of them at once.
void verify(const char* name, std::span<const PreparedOperation> operations);

}  // namespace tutti::api
