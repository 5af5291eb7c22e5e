// This host: what tells it from others. Threads: any.
#pragma once

#include <string>

namespace tutti::this_host {

/// Its host name.
std::string name();
/// Differs from host to host and from boot to boot; equal in all name spaces of one host.
std::string boot_id();

/// CPUs that are running, at least 1; asked once.
int cpus();

}  // namespace tutti::this_host
