// Registry: which backends there are, and the libraries that bring more.
//
// Threads: any.
#pragma once

#include <tutti/backend.hpp>

#include <any>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace tutti::backend {

inline constexpr const char* native = "native";

/// Which backend serves which kind of device.
using Devices = std::map<Device::Type, std::string>;

/// From "", "name" or "device:name,device:name". "": native for host memory, or who serves the device. Loads libraries.
/// Throws InvalidArgument for a bad text, DistBackendError for a backend that is not there.
Devices parse(const std::string& text, const std::optional<Device>& device, const char* operation);
/// One that is there; not native.
std::shared_ptr<CustomBackend> make(const std::string& name, const DistributedBackendOptions& options,
                                    const std::any& pg_options);
/// What parse() reads.
std::string to_string(const Devices& devices);

}  // namespace tutti::backend
