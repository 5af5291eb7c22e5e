// HostFallback: collectives that the library lacks, made by the context's host group, a native group: bit operations,
// reductions of (u)int16 and of complex values, product of values the library cannot take, values combined in rank
// order. For device memory: when the device has done the earlier work of the caller's stream, a copy to pinned host
// memory, the native collective, a copy back, in pieces that run beside each other. The operation is enqueued() when
// all copies back are in a stream of HostFallback's own. Host memory goes to the host group as it is.
//
// Threads: one at a time calls run(), in the same order on all ranks; it does not block. A thread of its own issues the
// host group's collectives in that order, and completes the operations.
// Invariants: nothing in HostFallback's streams waits for anything but copies, so they end by themselves. When drain()
// has returned true, also after Context::fail(), no buffer is touched any more.
#pragma once

#include "nccl/context.hpp"

#include <tutti/backend.hpp>

#include <memory>

namespace tutti::nccl {

class HostFallback {
 public:
    explicit HostFallback(std::shared_ptr<Context> context);
    /// Fails the operations under way.
    ~HostFallback();
    HostFallback(const HostFallback&) = delete;
    HostFallback& operator=(const HostFallback&) = delete;

    /// Any collective (also with premul_sum, with `inputs` and `outputs`). The request stays until it is complete.
    void run(const BackendRequest& request, BackendCompletion completion);
    /// Waits until nothing is under way, at most until `until`; returns whether that is so.
    bool drain(Clock::time_point until);

 private:
    class Core;
    const std::shared_ptr<Core> core_;
};

}  // namespace tutti::nccl
