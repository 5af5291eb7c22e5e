// Kinds of devices, and the stream that a thread works with.
#include "core/assert.hpp"
#include "core/suggestion.hpp"

#include <tutti/error.hpp>
#include <tutti/stream.hpp>
#include <tutti/tensor.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace tutti {
namespace {

using Type = Device::Type;

constexpr std::array<std::pair<Type, std::string_view>, 5> kinds{
    {{Type::cpu, "cpu"}, {Type::cuda, "cuda"}, {Type::rocm, "rocm"}, {Type::npu, "npu"}, {Type::xpu, "xpu"}}};

std::size_t number_of(Type type) noexcept {
    const auto found = std::ranges::find(kinds, type, [](const auto& entry) { return entry.first; });
    return static_cast<std::size_t>(found - kinds.begin());
}

thread_local std::array<Stream, kinds.size() + 1> current;

}  // namespace

std::string_view name_of(Type type) noexcept {
    const std::size_t number = number_of(type);
    return number < kinds.size() ? kinds[number].second : "unknown";
}

std::optional<Type> device_type(std::string_view name) noexcept {
    const auto found = std::ranges::find(kinds, name, [](const auto& entry) { return entry.second; });
    return found == kinds.end() ? std::nullopt : std::optional(found->first);
}

std::string to_string(Device device) {
    if (device.type == Type::cpu) return "cpu";
    return fmt::format("{}:{}", name_of(device.type), device.index);
}

Device device_from_string(std::string_view text) {
    const std::string_view name = text.substr(0, text.find(':'));
    const std::optional<Type> type = device_type(name);
    if (!type)
        throw InvalidArgument(fmt::format("device is '{}': expected cpu, cuda, rocm, npu or xpu{}", text,
                                          did_you_mean(name, std::array{"cpu", "cuda", "rocm", "npu", "xpu"})));
    Device device{*type, 0};
    if (name.size() == text.size()) return device;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + name.size() + 1, end, device.index);
    if (error != std::errc() || rest != end || device.index < 0)
        throw InvalidArgument(fmt::format("device is '{}': expected an index from 0 after the colon", text));
    return device;
}

Stream current_stream(Type device) noexcept {
    TUTTI_ASSERT(number_of(device) < current.size());
    return current[number_of(device)];
}
void set_current_stream(Type device, Stream stream) noexcept {
    TUTTI_ASSERT(number_of(device) < current.size());
    current[number_of(device)] = stream;
}

}  // namespace tutti
