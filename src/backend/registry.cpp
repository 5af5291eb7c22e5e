#include "backend/registry.hpp"

#include "backend/libraries.hpp"
#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace tutti {
namespace backend {
namespace {

// Names that torch.distributed has attributes for, or that tutti may bring: valid words, whether or not they are here.
constexpr std::array known_words{"native", "gloo", "nccl", "ucc", "mpi", "xccl", "hf_zmq", "rccl", "hccl"};

struct Entry {
    Backend::Extended make;
    std::vector<Device::Type> devices;
    MakeStreams make_streams{};  // a transport's, which has no `make`
};

class Registry {
 public:
    static Registry& instance() {
        static Registry& registry = *new Registry;  // groups may outlive static objects
        return registry;
    }
    void add(const std::string& name, Entry entry) {
        TUTTI_ASSERT(!name.empty() && name != native);
        TUTTI_ASSERT(static_cast<bool>(entry.make) != static_cast<bool>(entry.make_streams));
        TUTTI_ASSERT(!entry.devices.empty());
        const std::lock_guard lock(mutex_);
        if (!entries_.emplace(name, std::move(entry)).second)
            throw InvalidArgument(
                fmt::format("Backend.register_backend: name \"{}\" is taken: expected a new one", name));
    }
    /// Also looks for a library that registers it.
    std::optional<Entry> find(const std::string& name) {
        if (auto entry = registered(name)) return entry;
        const std::lock_guard one(loading_mutex_);  // threads that ask at once
        if (auto entry = registered(name)) return entry;
        const std::string file = load_library(name);
        auto entry = registered(name);
        if (!entry && !file.empty()) {
            throw DistBackendError(fmt::format(
                "backend \"{}\": {} has registered no such name here: expected a library of this backend, and "
                "a program that uses libtutti.so, as the library does",
                name, file));
        }
        return entry;
    }
    std::vector<std::string> names() {
        const std::lock_guard lock(mutex_);
        std::vector<std::string> all{native};
        for (const auto& [name, entry] : entries_) all.push_back(name);
        return all;
    }

 private:
    std::optional<Entry> registered(const std::string& name) {
        const std::lock_guard lock(mutex_);
        const auto found = entries_.find(name);
        return found == entries_.end() ? std::nullopt : std::optional(found->second);
    }
    std::mutex loading_mutex_;  // before mutex_
    std::mutex mutex_;
    std::map<std::string, Entry> entries_;
};

bool is_word(std::string_view name) {
    return !name.empty() &&
           std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
}

bool serves(const Entry& entry, Device::Type device) {
    TUTTI_ASSERT(!entry.devices.empty());
    return std::ranges::find(entry.devices, device) != entry.devices.end();
}

Entry found(const std::string& name, const char* operation) {
    TUTTI_ASSERT(operation != nullptr);
    TUTTI_ASSERT(!name.empty());
    if (name == native) return {nullptr, {Device::Type::cpu}, {}};
    if (auto entry = Registry::instance().find(name)) return *entry;
    if (std::ranges::find(known_words, name) == known_words.end()) {
        const auto names = Registry::instance().names();
        throw InvalidArgument(
            fmt::format("{}: backend \"{}\": expected one of {}, or a library "
                        "libtutti-backend-{}.so in a folder of TUTTI_BACKEND_PATH{}",
                        operation, name, fmt::join(names, ", "), name, did_you_mean(name, names)));
    }
    const std::string hint = how_to_get(name);
    throw DistBackendError(
        fmt::format("{}: backend \"{}\" is not here: native serves host memory; {}{}others come with "
                    "Backend::register_backend, or as libtutti-backend-{}.so in a folder of "
                    "TUTTI_BACKEND_PATH",
                    operation, name, hint, hint.empty() ? "" : "; ", name));
}

// The usual backend of a device, if it is here; else "", and why.
std::string usual_one(Device::Type type, std::string& why_not) {
    TUTTI_ASSERT(!usual_backend(type).empty());
    const std::string name(usual_backend(type));
    try {
        const auto entry = Registry::instance().find(name);
        why_not = trouble_of(name);
        if (entry && serves(*entry, type) && why_not.empty()) return name;
        if (why_not.empty()) why_not = fmt::format("there is no backend \"{}\" that serves it", name);
    } catch (const DistBackendError& error) {
        why_not = error.what();
        TUTTI_DEBUG("{}", why_not);
    }
    return {};
}

// The usual backend, or else one that is registered for it.
std::string one_that_serves(Device device, const char* operation) {
    std::string why_not;
    if (std::string name = usual_one(device.type, why_not); !name.empty()) return name;
    for (const std::string& name : Registry::instance().names()) {
        if (serves(found(name, operation), device.type)) return name;
    }
    throw DistBackendError(fmt::format("{}: device_id {}: no backend is registered that serves it, and {}", operation,
                                       tutti::to_string(device), why_not));
}

// In lower case.
std::string checked_name(const char* function, std::string_view name) {
    std::string lower = in_lower_case(std::string(name));
    if (!is_word(lower) || lower == "undefined") {
        throw InvalidArgument(fmt::format("{}: name \"{}\": expected letters, digits, '-' and '_'", function, name));
    }
    if (lower == native)
        throw InvalidArgument(fmt::format("{}: name \"native\" is taken: expected a new one", function));
    return lower;
}

template <class Made>
Made made(const std::string& name, const DistributedBackendOptions& options, Made one) {
    if (one) return one;
    throw DistBackendError(fmt::format("backend \"{}\" made nothing for group \"{}\"", name, options.group_id));
}

}  // namespace

Devices parse(const std::string& text, const std::optional<Device>& device, const char* operation) {
    TUTTI_ASSERT(operation != nullptr);
    Devices devices;
    const auto add = [&](Device::Type type, const std::string& name) {
        if (!devices.emplace(type, name).second) {
            throw InvalidArgument(
                fmt::format("{}: backend \"{}\" names device {} twice: expected once", operation, text, name_of(type)));
        }
    };
    const std::string lower = in_lower_case(text);
    if (lower.find(':') == std::string::npos) {
        if (lower.empty()) {
            add(Device::Type::cpu, native);
            for (const Device::Type type : devices_of_machine()) {
                std::string why_not;
                if (const std::string name = usual_one(type, why_not); !name.empty()) add(type, name);
            }
            if (device && !devices.contains(device->type)) add(device->type, one_that_serves(*device, operation));
            return devices;
        }
        const std::string name = canonical(lower);
        for (const Device::Type type : found(name, operation).devices) add(type, name);
        return devices;
    }
    for (std::size_t at = 0; at < lower.size();) {
        const std::size_t end = std::min(lower.find(',', at), lower.size());
        const std::string part = lower.substr(at, end - at);
        at = end + 1;
        const std::size_t colon = part.find(':');
        const std::string type = part.substr(0, colon);
        const std::optional<Device::Type> kind = device_type(type);
        if (colon == std::string::npos || !kind || colon + 1 == part.size()) {
            throw InvalidArgument(fmt::format(
                "{}: backend \"{}\": expected a name, or <device>:<name>,<device>:<name> with devices cpu, cuda, rocm, "
                "npu or xpu",
                operation, text));
        }
        const std::string name = canonical(part.substr(colon + 1));
        if (!serves(found(name, operation), *kind)) {
            throw InvalidArgument(
                fmt::format("{}: backend \"{}\" does not serve {}: expected one that does", operation, name, type));
        }
        add(*kind, name);
    }
    TUTTI_ASSERT(!devices.empty());
    return devices;
}

std::shared_ptr<CustomBackend> make(const std::string& name, const DistributedBackendOptions& options,
                                    const std::any& pg_options) {
    TUTTI_ASSERT(name != native);
    return made(name, options, found(name, "ProcessGroup").make(options, pg_options));
}

bool is_transport(const std::string& name) {
    return found(name, "ProcessGroup").make_streams != nullptr;
}

std::unique_ptr<transport::Streams> make_streams(const std::string& name, const DistributedBackendOptions& options) {
    TUTTI_ASSERT(name != native);
    return made(name, options, found(name, "ProcessGroup").make_streams(options));
}

}  // namespace backend

using backend::Registry;

const Backend Backend::NATIVE{Known{}, "native"};
const Backend Backend::GLOO{Known{}, "gloo"};
const Backend Backend::NCCL{Known{}, "nccl"};
const Backend Backend::UCC{Known{}, "ucc"};
const Backend Backend::MPI{Known{}, "mpi"};
const Backend Backend::XCCL{Known{}, "xccl"};
const Backend Backend::UNDEFINED{Known{}, "undefined"};

Backend::Backend(std::string_view name) : name_(backend::canonical(in_lower_case(std::string(name)))) {
    if (std::ranges::find(backend::known_words, name_) != backend::known_words.end()) return;
    if (backend::is_word(name_) && Registry::instance().find(name_)) return;
    throw InvalidArgument(fmt::format("Backend: \"{}\": expected one of {}, or a registered name{}", name,
                                      fmt::join(backend::known_words, ", "), did_you_mean(name, backend::known_words)));
}

void Backend::register_backend(std::string_view name, Extended func, const std::vector<Device::Type>& devices) {
    const std::string lower = backend::checked_name("Backend.register_backend", name);
    if (!func) throw InvalidArgument("Backend.register_backend: func is empty: expected a function");
    if (devices.empty()) throw InvalidArgument("Backend.register_backend: devices is empty: expected at least one");
    Registry::instance().add(lower, {std::move(func), devices, {}});
}

void Backend::register_backend(std::string_view name, Plain func, const std::vector<Device::Type>& devices) {
    if (!func) throw InvalidArgument("Backend.register_backend: func is empty: expected a function");
    register_backend(name, Extended([func = std::move(func)](const DistributedBackendOptions& o, const std::any&) {
                         return func(o.store, o.group_rank, o.group_size, o.timeout);
                     }),
                     devices);
}

Backend Backend::attribute(std::string_view name) {
    const std::string lower = in_lower_case(std::string(name));
    const auto upper = std::ranges::any_of(name, [](unsigned char c) { return std::islower(c) != 0; });
    if (upper) {
        throw InvalidArgument(fmt::format("Backend.attribute: \"{}\": expected the name in upper case, as GLOO", name));
    }
    return Backend(lower);
}

std::vector<std::string> Backend::available() {
    return Registry::instance().names();
}

bool is_backend_available(std::string_view name) {
    const std::string wanted = backend::canonical(in_lower_case(std::string(name)));
    if (wanted == backend::native) return true;
    try {
        return backend::is_word(wanted) && Registry::instance().find(wanted) && backend::trouble_of(wanted).empty();
    } catch (const DistBackendError& error) {
        TUTTI_DEBUG("{}", error.what());
        return false;
    }
}
bool is_mpi_available() {
    return is_backend_available("mpi");
}
bool is_nccl_available() {
    return is_backend_available("nccl");
}
bool is_gloo_available() {
    return is_backend_available("gloo");
}
bool is_ucc_available() {
    return is_backend_available("ucc");
}
bool is_xccl_available() {
    return is_backend_available("xccl");
}

void register_transport(std::string_view name, MakeStreams make) {
    const std::string lower = backend::checked_name("register_transport", name);
    if (!make) throw InvalidArgument("register_transport: make is empty: expected a function");
    Registry::instance().add(lower, {nullptr, {Device::Type::cpu}, std::move(make)});
}

DeviceEvent::~DeviceEvent() = default;

std::shared_ptr<CustomBackend> CustomBackend::split(const DistributedBackendOptions*, const std::any&) {
    return nullptr;
}
std::shared_ptr<CustomBackend> CustomBackend::shrink(const DistributedBackendOptions&, const std::vector<int>&,
                                                     const std::any&) {
    return nullptr;
}

std::string_view to_string(BackendCall call) noexcept {
    if (const auto collective = collective_of(call)) return to_string(*collective);
    if (call == BackendCall::send) return "send";
    return call == BackendCall::receive ? "receive" : "unknown";
}

}  // namespace tutti
