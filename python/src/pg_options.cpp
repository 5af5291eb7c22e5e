#include "pg_options.hpp"

#include "backends.hpp"
#include "calls.hpp"

#include <tutti/nccl.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::python {
namespace {

constexpr std::array<std::string_view, 4> like_nccl{"nccl", "rccl", "hccl", "xccl"};

// "cpu:native,cuda:nccl": native, nccl.
std::vector<std::string> names_in(std::string_view text) {
    std::vector<std::string> names;
    while (!text.empty()) {
        const std::string_view part = text.substr(0, text.find(','));
        text.remove_prefix(std::min(part.size() + 1, text.size()));
        const std::size_t colon = part.find(':');
        std::string name(colon == std::string_view::npos ? part : part.substr(colon + 1));
        std::ranges::transform(name, name.begin(),
                               [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
        names.push_back(std::move(name));
    }
    return names;
}

bool is_like_nccl(std::string_view name) {
    return std::ranges::find(like_nccl, name) != like_nccl.end();
}

// Whether a backend of NCCL's kind, not written in Python, would get the options. No names: the usual backends of
// devices.
bool are_for_nccl(const std::vector<std::string>& names) {
    if (names.empty())
        return std::ranges::none_of(like_nccl, [](std::string_view name) { return is_from_python(std::string(name)); });
    return std::ranges::any_of(names, [](const auto& name) { return is_like_nccl(name) && !is_from_python(name); });
}

bool are_options_of_nccl(nb::handle options) {
    return nb::hasattr(options, "is_high_priority_stream") && nb::hasattr(options, "config");
}

// Unset fields of PyTorch are the smallest integer, as NCCL's are.
std::optional<int> number(nb::handle config, const char* field, const char* operation) {
    const nb::object value = nb::getattr(config, field, nb::none());
    if (value.is_none()) return std::nullopt;
    const int given = integer_of(value, operation, (std::string("pg_options.config.") + field).c_str());
    return given == std::numeric_limits<int>::min() ? std::nullopt : std::optional(given);
}

std::optional<std::string> text(nb::handle config, const char* field, const char* operation) {
    const nb::object value = nb::getattr(config, field, nb::none());
    if (value.is_none()) return std::nullopt;
    if (!PyUnicode_Check(value.ptr()))
        throw_type_error(operation, (std::string("pg_options.config.") + field).c_str(), value, "a str or None");
    return nb::cast<std::string>(value);
}

NcclOptions nccl_options(nb::handle options, const char* operation) {
    NcclOptions result;
    result.is_high_priority_stream = nb::cast<bool>(nb::bool_(options.attr("is_high_priority_stream")));
    const nb::object config = options.attr("config");
    const std::pair<const char*, std::optional<int> NcclConfig::*> numbers[] = {
        {"blocking", &NcclConfig::blocking},
        {"cga_cluster_size", &NcclConfig::cga_cluster_size},
        {"min_ctas", &NcclConfig::min_ctas},
        {"max_ctas", &NcclConfig::max_ctas},
        {"split_share", &NcclConfig::split_share},
        {"traffic_class", &NcclConfig::traffic_class},
        {"collnet_enable", &NcclConfig::collnet_enable},
        {"cta_policy", &NcclConfig::cta_policy},
        {"shrink_share", &NcclConfig::shrink_share},
        {"nvls_ctas", &NcclConfig::nvls_ctas},
        {"n_channels_per_net_peer", &NcclConfig::n_channels_per_net_peer},
        {"nvlink_centric_sched", &NcclConfig::nvlink_centric_sched},
    };
    for (const auto& [field, member] : numbers) result.config.*member = number(config, field, operation);
    result.config.net_name = text(config, "net_name", operation);
    result.config.comm_name = text(config, "comm_name", operation);
    return result;
}

}  // namespace

std::any pg_options_of(nb::handle options, const std::string& backend, const char* operation) {
    if (options.is_none()) return {};
    const std::vector<std::string> names = names_in(backend);
    if (!are_for_nccl(names)) return shared_object(options);
    if (are_options_of_nccl(options)) return nccl_options(options, operation);
    // Without a backend's name, or with one from Python beside NCCL's, the options may be for another backend.
    const bool for_nccl_alone = !names.empty() && std::ranges::none_of(names, &is_from_python);
    if (for_nccl_alone) throw_type_error(operation, "pg_options", options, "a ProcessGroupNCCL.Options or None");
    return shared_object(options);
}

}  // namespace tutti::python
