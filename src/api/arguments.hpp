// The arguments that the public functions have in common, and their checks: groups, roots, devices, dtypes, counts.
// Each check throws InvalidArgument.
#pragma once

#include "api/blocks.hpp"
#include "group/group.hpp"

#include <tutti/distributed.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>

#include <memory>
#include <optional>

namespace tutti::api {

using detail::Group;

/// Throws InvalidArgument. Out of line, so that correct calls do not execute its instructions.
template <class... Args>
[[noreturn, gnu::cold, gnu::noinline]] void refuse(fmt::format_string<const Args&...> format, const Args&... args) {
    throw InvalidArgument(fmt::format(format, args...));
}

/// The default group, or null. Quicker than default_group(), since every call needs it. Valid until this thread's next
/// call.
const std::shared_ptr<Group>& default_impl() noexcept;
/// The group of an option; throws if there is none, or this rank is not a member.
std::shared_ptr<Group> group_of(const ProcessGroup& group, const char* operation);
[[noreturn]] void refuse_group(const ProcessGroup& group, const char* operation);
/// The same for short calls, without a reference: an atomic reference count would wait until all earlier stores are
/// visible to the other CPUs. Null if there is none.
inline Group* group_unheld(const ProcessGroup& group) noexcept {
    if (group) return group.impl().get();
    return group.is_non_member() ? nullptr : default_impl().get();
}

/// Logs, once for each function, that a rank outside the group calls it.
[[gnu::cold, gnu::noinline]] void warn_of_outsider(const char* operation);
/// Whether this rank is outside of the group: a call of that function has nothing to do.
inline bool is_outside(const ProcessGroup& group, const char* operation) {
    if (!group.is_non_member()) [[likely]]
        return false;
    warn_of_outsider(operation);
    return true;
}

/// The root, or the peer, that a pair of options names (`argument` and group_`argument`, which is "src" or "dst"), as a
/// rank of the group; `fallback` (a global rank) where neither is given, -1: InvalidArgument.
int root_of(const char* operation, const char* argument, std::optional<int> global, std::optional<int> in_group,
            const Group& group, int fallback);
/// The rank in the group of a global rank, or of one in the group; throws where it has none. `what`: "src".
int rank_in(const char* operation, const char* what, std::optional<int> global, std::optional<int> in_group,
            const Group& group);

inline void check_timeout(const char* operation, milliseconds timeout) {
    if (timeout < milliseconds::zero()) [[unlikely]]
        refuse("{}: timeout {} ms: expected zero (the group's) or more", operation, timeout.count());
}

/// For a device that the group does not serve: throws unless the call carries bytes of tutti's own (HostBytes).
void check_unserved(const char* operation, const char* argument, const ConstTensorView& view, const Group& group);
/// Throws where no backend of the group serves the tensor's device.
inline void check_device(const char* operation, const char* argument, const ConstTensorView& view, const Group& group) {
    if (!group.serves(view.device().type)) [[unlikely]]
        check_unserved(operation, argument, view, group);
}
/// The same, and its type is that of another tensor.
void check_dtype(const char* operation, const char* argument, const ConstTensorView& view, DType dtype,
                 const Group& group);
void check_count(const char* operation, const char* argument, const ConstTensorView& view, std::uint64_t count);
/// A tensor has a block for each rank, each with as many elements as `block`, which the caller gives as `block_name`.
void check_blocks(const char* operation, const char* argument, const ConstTensorView& view, const char* block_name,
                  const ConstTensorView& block, const Group& group);
/// A list has a tensor for each rank.
void check_length(const char* operation, const char* argument, std::size_t length, const Group& group);
[[noreturn]] void refuse_op(const char* operation, ReduceOp::Kind op, DType dtype);
inline void check_op(const char* operation, ReduceOp::Kind op, DType dtype) {
    if (!is_supported(op, dtype)) [[unlikely]]
        refuse_op(operation, op, dtype);
}

}  // namespace tutti::api
