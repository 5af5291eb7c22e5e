// A vendor's library that is none, for tests of the plug-in's parts: communicators, sends and receives between threads
// of this process, in the order of the fake driver's streams, or at once where there is none. It checks that both sides
// of a message agree about its length, and fails on request.
//
// Threads: any. The settings are the process's.
#pragma once

#include "nccl/library.hpp"

#include <atomic>
#include <memory>

namespace tutti::test {

struct FakeLibrary {
    /// `host_memory`: it serves host memory as well.
    static std::shared_ptr<const nccl::Library> get(bool host_memory);

    static inline std::atomic<int> communicators{0};       ///< halves that live now
    static inline std::atomic<int> communicators_made{0};  ///< halves, ever
    static inline std::atomic<int> failing_sends{0};       ///< so many sends return an error
    static inline std::atomic<int> lost_receives{0};       ///< so many receives end their communicator, later
    static inline std::atomic<bool> never_connects{false};
};

}  // namespace tutti::test
