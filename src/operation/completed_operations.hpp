// CompletedOperations: the operations that are complete, and whose continuations are still to be called.
//
// Invariant: continuations are called in the order in which operations completed, by one thread at a time. Two threads
// that called them concurrently would mix their order, and operations that continuations issue must be issued in the
// same order on all ranks.
//
// Threads: one at a time (the lock of the world's operations).
#pragma once

#include "core/assert.hpp"
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
    void add(std::shared_ptr<Operation> operation) {
        TUTTI_ASSERT(operation != nullptr && operation->done());
        operations_.push_back(std::move(operation));
    }
    /// Releases `lock`, which this thread holds, and calls the continuations; if another thread is calling
    /// continuations, leaves them to that thread. If a continuation completes further operations, the same thread calls
    /// their continuations before the first one returns.
    void deliver(BiasedMutex& lock) TUTTI_THREAD_ATTRIBUTE(release_capability(lock));

 private:
    using List = std::vector<std::shared_ptr<Operation>>;
    List take(List& spare);

    List operations_;
    std::thread::id deliverer_;
};

}  // namespace tutti::detail
