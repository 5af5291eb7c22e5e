// Collectives: brings a group's collectives to their devices in the order of their issue. A collective that can begin
// at once does so in the caller's thread; the others (they need the communicator, connections that the library makes,
// or other ranks in host memory) wait in a thread of this class.
//
// Threads: one at a time calls run(), begin_group() and end_group(); the rest any.
#pragma once

#include "nccl/context.hpp"
#include "nccl/host_fallback.hpp"
#include "nccl/launch.hpp"

#include <tutti/backend.hpp>

#include <memory>

namespace tutti::nccl {

class Collectives {
 public:
    Collectives(std::shared_ptr<Context> context, std::shared_ptr<HostFallback> by_host);
    ~Collectives();
    Collectives(const Collectives&) = delete;
    Collectives& operator=(const Collectives&) = delete;

    /// Makes the communicator of a device now. Blocks until all ranks have come, at most for the group's timeout.
    void connect(Device device);
    /// The same with a communicator that exists already.
    void connect(Device device, std::shared_ptr<Communicator> communicator, const Agreement& agreed);

    /// Throws DistBackendError for a collective that a graph should capture and cannot.
    void run(const BackendRequest& request, BackendCompletion completion);
    void begin_group();
    void end_group();

    /// The channel of a connected device; waits until all earlier collectives have begun.
    const Channel& settled(Device device);

    /// Null: the device has no communicator yet.
    const Channel* connected_channel(Device device);

    /// Waits until no collective waits to begin, at most until `until`; returns whether that is so.
    bool drain(Clock::time_point until);

 private:
    class Core;
    const std::shared_ptr<Core> core_;  // outlives this while its thread is in a call of others
};

}  // namespace tutti::nccl
