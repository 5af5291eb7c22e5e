// Descriptors: how many files this process may have open (RLIMIT_NOFILE). The soft limit is there for programs that use
// select(2); the hard one is the system's. A world and a store raise it as they begin: otherwise any call that opens
// a descriptor could be the first to fail (EMFILE), and each would need its own retry.
//
// Threads: raise() any; give_back() in a forked child before exec, where only async-signal-safe calls may run.
#pragma once

#include <cstdint>

namespace tutti::descriptors {

/// The soft limit becomes the hard one. False: it was that already.
bool raise() noexcept;

/// Restores the soft limit from before the first raise().
void give_back() noexcept;

/// How many may be open now, and at most.
struct Limits {
    std::uint64_t soft = 0, hard = 0;
};
Limits limits() noexcept;

}  // namespace tutti::descriptors
