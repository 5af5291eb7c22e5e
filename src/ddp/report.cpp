#include "ddp/report.hpp"

#include "core/assert.hpp"
#include "core/debug_level.hpp"
#include "core/env.hpp"
#include "core/log.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>

namespace tutti::ddp {
namespace {

constexpr const char* not_set = "N/A";

std::string environment(std::initializer_list<const char*> names) {
    for (const char* name : names) {
        if (const auto value = env::get(name)) return *value;
    }
    return not_set;
}

template <class List>
std::string joined(const List& list) {
    return list.empty() ? not_set : fmt::format("{}", fmt::join(list, ", "));
}

std::string or_not_set(const std::string& text) {
    return text.empty() ? not_set : text;
}

// torch uses C++'s names, where C++ has one.
std::string type_name(DType dtype) {
    if (dtype == float32) return "float";
    if (dtype == float64) return "double";
    return std::string(to_string(dtype));
}

const char* level_name(DebugLevel level) {
    switch (level) {
        case DebugLevel::off: return "OFF";
        case DebugLevel::info: return "INFO";
        case DebugLevel::detail: return "DETAIL";
    }
    return not_set;
}

std::string output_device(const DistributedDataParallelOptions& o) {
    if (o.output_device) return std::to_string(*o.output_device);
    return o.device_ids.empty() ? not_set : std::to_string(o.device_ids.front());
}

}  // namespace

void report_initialized(const ProcessGroup& group, const std::vector<NamedParameter>& parameters,
                        const DistributedDataParallelOptions& o, const std::vector<std::size_t>& bucket_bytes) {
    if (get_debug_level() == DebugLevel::off) return;
    std::size_t bytes = 0;
    std::set<std::string> dtypes;
    bool several_devices = false;
    for (const NamedParameter& p : parameters) {
        bytes += p.tensor.byte_count();
        dtypes.insert(type_name(p.tensor.dtype()));
        several_devices |= p.tensor.device() != parameters.front().tensor.device();
    }
    const auto flag = [](bool value) { return std::string(value ? "1" : "0"); };
    // The order and the entries are torch's.
    const std::pair<const char*, std::string> lines[] = {
        {"broadcast_buffers", flag(o.broadcast_buffers)},
        {"bucket_cap_bytes", std::to_string(o.bucket_cap_bytes)},
        {"find_unused_parameters", flag(o.find_unused_parameters)},
        {"gradient_as_bucket_view", flag(o.gradient_as_bucket_view)},
        {"is_multi_device_module", flag(several_devices)},
        {"iteration", "0"},
        {"num_parameter_tensors", std::to_string(parameters.size())},
        {"output_device", output_device(o)},
        {"rank", std::to_string(group.rank())},
        {"total_parameter_size_bytes", std::to_string(bytes)},
        {"world_size", std::to_string(group.size())},
        {"backend_name", group.backend()},
        {"bucket_sizes", joined(bucket_bytes)},
        {"cuda_visible_devices", environment({"CUDA_VISIBLE_DEVICES"})},
        {"device_ids", joined(o.device_ids)},
        {"dtypes", joined(dtypes)},
        {"master_addr", environment({"MASTER_ADDR"})},
        {"master_port", environment({"MASTER_PORT"})},
        {"module_name", or_not_set(o.module_name)},
        {"nccl_async_error_handling", environment({"TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"})},
        {"nccl_blocking_wait", environment({"TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"})},
        {"nccl_debug", environment({"NCCL_DEBUG"})},
        {"nccl_ib_timeout", environment({"NCCL_IB_TIMEOUT"})},
        {"nccl_nthreads", environment({"NCCL_NTHREADS"})},
        {"nccl_socket_ifname", environment({"NCCL_SOCKET_IFNAME"})},
        {"torch_distributed_debug", level_name(get_debug_level())},
    };
    std::string text = fmt::format("[Rank {}]: DDP Initialized with:", group.rank());
    for (const auto& [key, value] : lines) text += fmt::format("\n{}: {}", key, value);
    TUTTI_INFO("{}", text);
}

Durations durations(const Moments& m) {
    using std::chrono::nanoseconds;
    const auto between = [](Clock::time_point from, Clock::time_point to) {
        return std::max(std::chrono::duration_cast<nanoseconds>(to - from), nanoseconds{0});
    };
    Durations d;
    if (!m.backward_began || !m.computed || !m.sending_began || !m.sent) return d;
    d.forward = between(m.forward_began, *m.backward_began);
    d.backward = between(*m.backward_began, *m.computed);
    d.communication = between(*m.sending_began, *m.sent);
    d.overlap = between(*m.sending_began, std::min(*m.computed, *m.sent));
    return d;
}

// torch's choice: all of the beginning, then a few.
bool Statistics::wants(std::uint64_t iteration) {
    TUTTI_ASSERT(iteration > 0);
    return debug_level_is_detail() && (iteration <= 10 || iteration % 100 == 0);
}

void Statistics::add(const Durations& d) {
    TUTTI_ASSERT(d.forward.count() >= 0 && d.backward.count() >= 0 && d.communication.count() >= 0 &&
                 d.overlap.count() >= 0);
    sums_.forward += d.forward;
    sums_.backward += d.backward;
    sums_.communication += d.communication;
    sums_.overlap += d.overlap;
    ++iterations_;
}

void Statistics::report(const ProcessGroup& group, const DistributedDataParallelOptions& o,
                        std::size_t unused_bytes) const {
    TUTTI_ASSERT(iterations_ > 0);
    const auto average = [&](std::chrono::nanoseconds sum) {
        return sum.count() / std::max<std::int64_t>(iterations_, 1);
    };
    TUTTI_INFO(
        "[Rank {} / {}] Training {} unused_parameter_size={}\n"
        " Avg forward compute time: {}\n"
        " Avg backward compute time: {}\n"
        " Avg backward comm. time: {}\n"
        " Avg backward comm/comp overlap time: {}",
        group.rank(), group.size(), or_not_set(o.module_name), unused_bytes, average(sums_.forward),
        average(sums_.backward), average(sums_.communication), average(sums_.overlap));
}

void Timing::begin(bool is_looked_at) {
    is_on_ = is_looked_at;
    moments_ = {.forward_began = Clock::now()};
}

void Timing::arrived(Clock::time_point when) {
    TUTTI_ASSERT(is_on_);
    if (!moments_.sent || when > *moments_.sent) moments_.sent = when;
}

void Timing::end(const ProcessGroup& group, const DistributedDataParallelOptions& options, std::size_t unused_bytes) {
    if (!is_on_) return;
    statistics_.add(durations(moments_));
    statistics_.report(group, options, unused_bytes);
}

}  // namespace tutti::ddp
