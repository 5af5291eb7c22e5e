// ByHost: collectives that the library lacks, made by the context's companion, a native group: bit operations,
// reductions of (u)int16 and of complex values, product of values the library cannot take, values combined in rank
// order. For device memory: when the device has done the earlier work of the caller's stream, a copy to pinned host
// memory, the native collective, a copy back, in pieces that run beside each other. The operation is enqueued() when
// all copies back are in a stream of ByHost's own. Host memory goes to the companion as it is.
//
// Threads: one at a time calls run(), in the same order on all ranks; it does not block. A thread of its own issues the
// companion's collectives in that order, and completes the operations.
// Invariants: nothing in ByHost's streams waits for anything but copies, so they end by themselves. When drain() has
// returned true, also after Context::fail(), no buffer is touched any more.
#pragma once

#include "nccl/context.hpp"

#include <tutti/backend.hpp>

#include <memory>

namespace tutti::nccl {

class ByHost {
 public:
    explicit ByHost(std::shared_ptr<Context> context);
    /// Fails the operations under way.
    ~ByHost();
    ByHost(const ByHost&) = delete;
    ByHost& operator=(const ByHost&) = delete;

    /// Any collective (also with premul_sum, with `inputs` and `outputs`). The request stays until it is complete.
    void run(const BackendRequest& request, BackendCompletion completion);
    /// Waits until nothing is under way, at most until `until`; returns whether that is so.
    bool drain(Clock::time_point until);

 private:
    class Core;
    const std::shared_ptr<Core> core_;
};

}  // namespace tutti::nccl
