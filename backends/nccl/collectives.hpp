// Collectives: brings a group's collectives to their devices in the order of their issue. One that can begin at once
// does so in the caller's thread; those that must wait (for the communicator, for connections that the library makes,
// for other ranks in host memory) wait in a thread of their own.
//
// Threads: run(), begin_group() and end_group() by one at a time; the rest any.
#pragma once

#include "nccl/by_host.hpp"
#include "nccl/context.hpp"
#include "nccl/launch.hpp"

#include <tutti/backend.hpp>

#include <memory>

namespace tutti::nccl {

class Collectives {
 public:
    Collectives(std::shared_ptr<Context> context, std::shared_ptr<ByHost> by_host);
    ~Collectives();
    Collectives(const Collectives&) = delete;
    Collectives& operator=(const Collectives&) = delete;

    /// Makes the communicator of a device now. Blocks until all ranks have come, at most for the group's timeout.
    void connect(Device device);
    /// With a communicator that is there already.
    void connect(Device device, std::shared_ptr<Communicator> communicator, const Agreement& agreed);

    /// Throws DistBackendError for one that a graph should capture and cannot.
    void run(const BackendRequest& request, BackendCompletion completion);
    void begin_group();
    void end_group();

    /// The channel of a device that is connected; waits until what was issued before has been begun.
    const Channel& settled(Device device);

    /// Null: its communicator has not been made.
    const Channel* connected_channel(Device device);

    /// Whether nothing waits to be begun; waits for it until then.
    bool drain(Clock::time_point until);

 private:
    class Core;
    const std::shared_ptr<Core> core_;  // outlives this while its thread is in a call of others
};

}  // namespace tutti::nccl
