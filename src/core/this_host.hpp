// This host: the facts that tell it from others. Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::this_host {

/// Its host name.
std::string name();
/// Differs from host to host and from boot to boot; equal in all name spaces of one host.
std::string boot_id();

/// The number of online CPUs, at least 1; determined once.
int cpus();

/// The most bytes of a file that this process may write (ulimit -f). Writing more raises SIGXFSZ, which ends the
/// process.
std::uint64_t file_size_limit();

}  // namespace tutti::this_host
