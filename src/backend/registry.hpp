// Registry: the backends that are registered, and those that shared libraries register on demand.
//
// Threads: any.
#pragma once

#include "backend/devices.hpp"

#include <tutti/backend.hpp>
#include <tutti/transport.hpp>

#include <any>
#include <memory>
#include <optional>
#include <string>

namespace tutti::backend {

inline constexpr const char* native = "native";

/// From "", "name" or "device:name,device:name". "": native for host memory, and for the machine's devices their usual
/// backends where these are here; for the kind of `device` one that serves it. Loads libraries.
/// Throws InvalidArgument for a bad text, DistBackendError for a backend that is not there.
Devices parse(const std::string& text, const std::optional<Device>& device, const char* operation);
/// Whether the name is a transport's: the group itself works, over streams that make_streams() makes.
bool is_transport(const std::string& name);
std::unique_ptr<transport::Streams> make_streams(const std::string& name, const DistributedBackendOptions& options);
/// Makes a backend that is there; neither native nor a transport.
std::shared_ptr<CustomBackend> make(const std::string& name, const DistributedBackendOptions& options,
                                    const std::any& pg_options);

}  // namespace tutti::backend
