// Registry: the registered backends, and those that shared libraries register on demand.
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

/// Parses "", "name" or "device:name,device:name". "": native for host memory, the usual backend for each of the
/// machine's devices if it is available, and a backend that serves `device`. Loads libraries.
/// Throws InvalidArgument for a malformed text, DistBackendError for a backend that is not available.
Devices parse(const std::string& text, const std::optional<Device>& device, const char* operation);
/// Whether `name` is a transport, so that the group itself runs operations over the streams of make_streams().
bool is_transport(const std::string& name);
std::unique_ptr<transport::Streams> make_streams(const std::string& name, const DistributedBackendOptions& options);
/// Makes an available backend that is neither native nor a transport.
std::shared_ptr<CustomBackend> make(const std::string& name, const DistributedBackendOptions& options,
                                    const std::any& pg_options);

}  // namespace tutti::backend
