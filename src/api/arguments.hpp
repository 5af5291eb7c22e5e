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

/// Throws InvalidArgument. Out of line, to keep its instructions out of the path of correct calls.
template <class... Args>
[[noreturn, gnu::cold, gnu::noinline]] void refuse(fmt::format_string<const Args&...> format, const Args&... args) {
    throw InvalidArgument(fmt::format(format, args...));
}

/// The default group, or null. Every call needs it, so this is quicker than default_group(). The reference is valid
/// until this thread's next call.
const std::shared_ptr<Group>& default_impl() noexcept;
/// The group that an option names (none: the default group); throws if there is no group, or this rank is not a member.
std::shared_ptr<Group> group_of(const ProcessGroup& group, const char* operation);
[[noreturn]] void refuse_group(const ProcessGroup& group, const char* operation);
/// As group_of(), but for short calls: returns null instead of throwing, and leaves the reference count alone, since an
/// atomic update would wait until all earlier stores are visible to the other CPUs.
inline Group* group_unheld(const ProcessGroup& group) noexcept {
    if (group) return group.impl().get();
    return group.is_non_member() ? nullptr : default_impl().get();
}

/// Logs, once for each function, that a rank outside the group calls it.
[[gnu::cold, gnu::noinline]] void warn_of_outsider(const char* operation);
/// Whether this rank is outside the group, so that `operation` has nothing to do; logs a warning then.
inline bool is_outside(const ProcessGroup& group, const char* operation) {
    if (!group.is_non_member()) [[likely]]
        return false;
    warn_of_outsider(operation);
    return true;
}

/// The root or peer that a pair of options names, as a rank of the group: `global` is the option `argument` ("src" or
/// "dst"), `in_group` the option group_`argument`. If neither is given: `fallback`, a global rank; -1: InvalidArgument.
int root_of(const char* operation, const char* argument, std::optional<int> global, std::optional<int> in_group,
            const Group& group, int fallback);
/// Converts `global`, or `in_group` if that is given, to a rank of the group; throws if the group has no such rank.
/// `what`: "src".
int rank_in(const char* operation, const char* what, std::optional<int> global, std::optional<int> in_group,
            const Group& group);

inline void check_timeout(const char* operation, milliseconds timeout) {
    if (timeout < milliseconds::zero()) [[unlikely]]
        refuse("{}: timeout {} ms: expected zero (the group's) or more", operation, timeout.count());
}

/// How long shrink and grow wait for survivors: `timeout`; zero: `of_group`, and not less than `patience` needs. Throws
/// for negative times, and for a patience that the given timeout would cut off.
milliseconds survivors_timeout(const char* operation, milliseconds timeout, std::optional<milliseconds> patience,
                               milliseconds of_group);

/// Throws for a view on a device that the group does not serve, unless it is host memory in the scope of a HostBytes.
void check_unserved(const char* operation, const char* argument, const ConstTensorView& view, const Group& group);
/// Throws if no backend of the group serves the view's device.
inline void check_device(const char* operation, const char* argument, const ConstTensorView& view, const Group& group) {
    if (!group.serves(view.device().type)) [[unlikely]]
        check_unserved(operation, argument, view, group);
}
/// As check_device(); also throws unless the view has the type of another tensor, `dtype`.
void check_dtype(const char* operation, const char* argument, const ConstTensorView& view, DType dtype,
                 const Group& group);
void check_count(const char* operation, const char* argument, const ConstTensorView& view, std::uint64_t count);
/// A tensor has a block for each rank, each with as many elements as `block`, which the caller gives as `block_name`.
void check_blocks(const char* operation, const char* argument, const ConstTensorView& view, const char* block_name,
                  const ConstTensorView& block, const Group& group);
/// Throws unless a list has one tensor for each rank.
void check_length(const char* operation, const char* argument, std::size_t length, const Group& group);
/// Whether an operator of the caller combines tensors of that dtype on that device; throws if not.
void check_user_op(const char* operation, const detail::UserOperator& op, DType dtype, Device device,
                   const Group& group);
[[noreturn]] void refuse_op(const char* operation, ReduceOp::Kind op, DType dtype);
inline void check_op(const char* operation, ReduceOp::Kind op, DType dtype) {
    if (!is_supported(op, dtype)) [[unlikely]]
        refuse_op(operation, op, dtype);
}

}  // namespace tutti::api
