// This host: what tells it from others. Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::this_host {

/// Its host name.
std::string name();
/// Differs from host to host and from boot to boot; equal in all name spaces of one host.
std::string boot_id();

/// CPUs that are running, at least 1; asked once.
int cpus();

/// How long a file may become that this process writes (ulimit -f), in bytes. To write more brings SIGXFSZ, which ends
/// the process.
std::uint64_t file_size_limit();

}  // namespace tutti::this_host
