// Descriptors: how many files this process may have open (RLIMIT_NOFILE). The soft limit exists for programs that use
// select(2); the hard limit is the system's. A world and a store raise the soft limit when they start: otherwise any
// call that opens a descriptor could be the first to fail (EMFILE), and each such call would need its own retry.
//
// Threads: raise() any; give_back() in a forked child before exec, where only async-signal-safe calls may run.
#pragma once

#include <cstdint>

namespace tutti::descriptors {

/// Raises the soft limit to the hard limit. False: they were equal already, or the system refuses.
bool raise() noexcept;

/// Restores the soft limit from before the first raise().
void give_back() noexcept;

/// The limits of open descriptors: in force (soft), and attainable by raise() (hard).
struct Limits {
    std::uint64_t soft = 0, hard = 0;
};
Limits limits() noexcept;

}  // namespace tutti::descriptors
