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
/// Waits for all ranks of the group, and compares what they are about to call. Throws CollectiveMismatch on all of
/// them, or as monitored_barrier does.
void verify(const Call& call);
/// The same of a function that makes operations of its arguments: it calls them all at once.
void verify(const char* name, std::span<const PreparedOperation> operations);

}  // namespace tutti::api
