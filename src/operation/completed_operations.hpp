// CompletedOperations: those that are over, and whose continuations have yet to be called.
//
// Invariant: continuations are called in the order in which operations were added, by one thread at a time. Two threads
// that called them side by side would mix their order, and what continuations start has to begin in the same order on
// all ranks.
//
// Threads: one at a time (the lock of the world's operations).
#pragma once

#include "core/biased_mutex.hpp"
#include "core/thread_safety.hpp"
#include "operation/operation.hpp"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::detail {

class CompletedOperations {
 public:
    bool empty() const noexcept { return operations_.empty(); }
    void add(std::shared_ptr<Operation> operation) { operations_.push_back(std::move(operation)); }
    /// Lets `lock` go, which this thread holds, and calls the continuations, unless another thread is about it: then
    /// that one goes on with these. A continuation may complete further operations: its own thread calls theirs inside.
    void deliver(BiasedMutex& lock) TUTTI_THREAD_ATTRIBUTE(release_capability(lock));

 private:
    using List = std::vector<std::shared_ptr<Operation>>;
    List take(List& spare);

    List operations_;
    std::thread::id deliverer_;
};

}  // namespace tutti::detail
