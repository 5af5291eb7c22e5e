// A file in memory that processes map together. Free function; any thread.
#pragma once

#include "core/unique_fd.hpp"

#include <cstdint>

namespace tutti::transport {

/// Creates a file of `bytes` zeros, which take memory only once written. Its name shows in /proc only; the file
/// vanishes with its last descriptor and mapping. Throws DistBackendError that names the cause; a limit on file sizes
/// (ulimit -f) raises no signal.
UniqueFd make_memory_file(const char* name, std::uint64_t bytes);

}  // namespace tutti::transport
