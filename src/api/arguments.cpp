#include "api/arguments.hpp"

#include "api/host_bytes.hpp"
#include "core/assert.hpp"
#include "core/log.hpp"

#include <fmt/ranges.h>

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::api {

std::shared_ptr<Group> group_of(const ProcessGroup& group, const char* operation) {
    if (group) return group.impl();
    if (!group.is_non_member()) {
        if (const auto& standard = default_impl()) return standard;
    }
    refuse_group(group, operation);
}

void refuse_group(const ProcessGroup& group, const char* operation) {
    if (group.is_non_member()) refuse("{}: this rank is not in the group: expected a member", operation);
    throw InvalidArgument(fmt::format("{}: there is no default group; call init_process_group first", operation), {},
                          ErrorCode::not_initialized);
}

void warn_of_outsider(const char* operation) {
    static std::mutex mutex;
    static auto* const warned = new std::set<std::string, std::less<>>;  // for calls at the end of the process, too
    {
        const std::lock_guard lock(mutex);
        if (!warned->emplace(operation).second) return;
    }
    const auto& standard = default_impl();
    // PyTorch's words.
    TUTTI_WARN("Running {} on global rank {} which does not belong to the given group.", operation,
               standard ? standard->ranks().own_global() : -1);
}

int root_of(const char* operation, const char* argument, std::optional<int> global, std::optional<int> in_group,
            const Group& group, int fallback) {
    TUTTI_ASSERT(fallback < group.size() || !group.ranks().are_all());
    if (global && in_group) refuse("{}: {} and group_{} are both given: expected one", operation, argument, argument);
    if (!global && !in_group && fallback < 0)
        refuse("{}: no {} is given: expected {} or group_{}", operation, argument, argument, argument);
    if (!global && !in_group) global = fallback;
    return rank_in(operation, global ? argument : fmt::format("group_{}", argument).c_str(), global, in_group, group);
}

int rank_in(const char* operation, const char* what, std::optional<int> global, std::optional<int> in_group,
            const Group& group) {
    TUTTI_ASSERT(global.has_value() != in_group.has_value());
    const int rank = global ? group.ranks().rank_of(*global) : *in_group;
    if (rank >= 0 && rank < group.size()) return rank;
    if (!global || group.ranks().are_all()) {
        refuse("{}: {} {}: expected 0 to {}", operation, what, global ? *global : *in_group, group.size() - 1);
    }
    refuse("{}: {} {} is not in group \"{}\": expected one of its global ranks {}{}", operation, what, *global,
           group.name(), fmt::format("{}", fmt::join(group.ranks().all(), ", ")),
           *global >= 0 && *global < group.size() ? fmt::format(", or group_{} for a rank in the group", what) : "");
}

void check_unserved(const char* operation, const char* argument, const ConstTensorView& view, const Group& group) {
    TUTTI_ASSERT(!group.serves(view.device().type));
    if (view.device().type == Device::Type::cpu && HostBytes::are_meant()) return;
    if (group.serves(Device::Type::cpu)) {
        refuse("{}: {} is on {}: expected host memory", operation, argument, to_string(view.device()));
    }
    std::string served;
    for (const auto& [device, backend] : group.backends().names())
        served += fmt::format("{}{}:{}", served.empty() ? "" : ",", name_of(device), backend);
    refuse("{}: {} is on {}: no backend of group \"{}\" serves it; expected one of {}", operation, argument,
           to_string(view.device()), group.name(), served);
}

void check_dtype(const char* operation, const char* argument, const ConstTensorView& view, DType dtype,
                 const Group& group) {
    check_device(operation, argument, view, group);
    if (view.dtype() == dtype) return;
    refuse("{}: {} is {}: expected {}, as the other tensor", operation, argument, view.to_string(), to_string(dtype));
}

void check_count(const char* operation, const char* argument, const ConstTensorView& view, std::uint64_t count) {
    if (count_of(view) == count) return;
    refuse("{}: {} has {} elements: expected {}", operation, argument, view.element_count(), count);
}

void check_blocks(const char* operation, const char* argument, const ConstTensorView& view, const char* block_name,
                  const ConstTensorView& block, const Group& group) {
    const std::uint64_t count = count_of(block) * static_cast<std::uint64_t>(group.size());
    if (count_of(view) == count) return;
    refuse("{}: {} has {} elements: expected {}, for each of {} ranks as many as {} has, {}", operation, argument,
           view.element_count(), count, group.size(), block_name, block.element_count());
}

void check_length(const char* operation, const char* argument, std::size_t length, const Group& group) {
    if (length == static_cast<std::size_t>(group.size())) return;
    refuse("{}: {} has {} tensors: expected {}, one per rank", operation, argument, length, group.size());
}

void check_user_op(const char* operation, const detail::UserOperator& op, DType dtype, Device device,
                   const Group& group) {
    if (device.type != Device::Type::cpu) {
        refuse("{}: op is {}, which runs on the host, and a tensor is on {}: expected host memory", operation,
               op.to_string(), to_string(device));
    }
    const auto& names = group.backends().names();
    const auto own = names.find(Device::Type::cpu);
    if (own != names.end() && own->second != backend::native && !backend::is_transport(own->second)) {
        refuse(
            "{}: op is {}, and backend \"{}\" combines this group's tensors itself: expected a native group, or one "
            "over gloo or mpi",
            operation, op.to_string(), own->second);
    }
    const DType expected = op.parts().dtype;
    if (dtype == expected) return;
    if (expected == DType::uint8) {
        refuse(
            "{}: op is {}, and a tensor is of {}: expected the bytes of the elements, uint8, as tutti::items() gives "
            "them",
            operation, op.to_string(), to_string(dtype));
    }
    refuse("{}: op is {}, and a tensor is of {}: expected {}", operation, op.to_string(), to_string(dtype),
           to_string(expected));
}

void refuse_op(const char* operation, ReduceOp::Kind op, DType dtype) {
    std::vector<std::string_view> defined;
    for (int kind = 0; kind < reduce_op_count; ++kind) {
        const auto other = static_cast<ReduceOp::Kind>(kind);
        if (is_supported(other, dtype)) defined.push_back(to_string(other));
    }
    refuse("{}: op {} is not defined for {}: expected one of {}", operation, to_string(op), to_string(dtype),
           fmt::format("{}", fmt::join(defined, ", ")));
}

milliseconds survivors_timeout(const char* operation, milliseconds timeout, std::optional<milliseconds> patience,
                               milliseconds of_group) {
    constexpr milliseconds time_to_agree{5000};
    check_timeout(operation, timeout);
    if (!patience) return timeout.count() > 0 ? timeout : of_group;
    if (*patience < milliseconds::zero())
        refuse("{}: patience {} ms: expected zero or more", operation, patience->count());
    if (timeout.count() == 0) return std::max(of_group, *patience + time_to_agree);
    if (*patience >= timeout)
        refuse(
            "{}: patience {} ms is not shorter than timeout {} ms: expected it to be, as the timeout would end the "
            "call before anybody is left out",
            operation, patience->count(), timeout.count());
    return timeout;
}

}  // namespace tutti::api
