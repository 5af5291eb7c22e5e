// How collectives were carried out in this process, for the table in docs/backends.md (tools/backend-table).
//
// Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace tutti::backends {

enum class Way {
    native,    ///< by the foreign library's own function for it
    composed,  ///< from other functions of the library, or from messages that it carries
    by_host,   ///< by tutti, in host memory
};

/// Counts one collective, before it is complete.
void count(Way way) noexcept;

}  // namespace tutti::backends

/// The counts so far, by Way; each backend's library has its own.
extern "C" __attribute__((visibility("default"))) void tutti_backend_ways(std::uint64_t (*counts)[3]);
