#include "backend/devices.hpp"

#include "core/assert.hpp"

#include <tutti/process_group.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <system_error>

namespace tutti::backend {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

bool has_nvidia(const fs::path& root) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible != nullptr && (*visible == '\0' || std::string_view(visible).starts_with("-1"))) return false;
    return is_there(root / "dev/nvidia0") || is_there(root / "dev/nvidiactl") || is_there(root / "dev/dxg");
}

// Every vendor's cards have such a node: the vendor decides.
bool has_intel(const fs::path& root) {
    std::error_code error;
    for (fs::directory_iterator at(root / "sys/class/drm", error), end; !error && at != end; at.increment(error)) {
        if (!at->path().filename().string().starts_with("renderD")) continue;
        std::string vendor;
        std::ifstream(at->path() / "device/vendor") >> vendor;
        if (vendor == "0x8086") return true;
    }
    return false;
}

bool is_like_nccl(const std::string& name) {
    return name == "nccl" || name == "rccl" || name == "hccl" || name == "xccl";
}

}  // namespace

std::string to_string(const Devices& devices) {
    TUTTI_ASSERT(std::ranges::none_of(devices, [](const auto& entry) { return entry.second.empty(); }));
    std::string text;
    for (const auto& [type, name] : devices)
        text += fmt::format("{}{}:{}", text.empty() ? "" : ",", name_of(type), name);
    return text;
}

std::vector<Device::Type> devices_of_machine(const fs::path& root) {
    TUTTI_ASSERT(!root.empty());
    std::vector<Device::Type> types;
    if (has_nvidia(root)) types.push_back(Device::Type::cuda);
    if (is_there(root / "dev/kfd")) types.push_back(Device::Type::rocm);
    if (is_there(root / "dev/davinci_manager")) types.push_back(Device::Type::npu);
    if (has_intel(root)) types.push_back(Device::Type::xpu);
    return types;
}

const std::vector<Device::Type>& devices_of_machine() {
    static const auto& found = *new const std::vector(devices_of_machine("/"));  // groups may outlive static objects
    return found;
}

const std::string& main_backend(const Devices& devices, const std::vector<Device::Type>& machine) {
    TUTTI_ASSERT(!devices.empty());
    const auto host = devices.find(Device::Type::cpu);
    if (host != devices.end() && host->second != usual_backend(Device::Type::cpu)) return host->second;
    for (const Device::Type type : machine) {
        const auto found = devices.find(type);
        if (found != devices.end() && found->second == usual_backend(type)) return found->second;
    }
    return devices.begin()->second;
}

std::string_view usual_backend(Device::Type type) {
    switch (type) {
        case Device::Type::cpu: return "native";
        case Device::Type::cuda: return "nccl";
        case Device::Type::rocm: return "rccl";
        case Device::Type::npu: return "hccl";
        case Device::Type::xpu: return "xccl";
    }
    return {};
}

std::chrono::milliseconds default_timeout_of(const Devices& devices) {
    constexpr std::chrono::milliseconds of_nccl = std::chrono::minutes(10);
    const bool all = std::ranges::all_of(devices, [](const auto& entry) { return is_like_nccl(entry.second); });
    return all && !devices.empty() ? of_nccl : default_timeout;
}

}  // namespace tutti::backend
