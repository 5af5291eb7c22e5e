// ShortCalls: collectives that run in the slots of the ranks of this host (engine/slots), at once: the caller looks for
// the others for a moment before its call becomes an operation, which can time out, sleep and be interrupted.
//
// Threads: any.
#pragma once

#include "core/biased_mutex.hpp"
#include "engine/slots.hpp"
#include "group/operation.hpp"
#include "record/recorder.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tutti::transport {
class Neighbours;
}

namespace tutti::detail {

class Collectives;
class Driver;
class Flight;
class Group;
struct HostMeans;

class ShortCalls {
 public:
    /// Of a group, and its collectives; both outlive it.
    ShortCalls(Group& group, Collectives& collectives);

    /// Runs a short collective, when nothing else is in flight; as an operation of `longer` from the moment on when it
    /// takes longer. Where it has to begin as an operation, does nothing and returns false.
    bool run(const engine::CollectiveCall& call, OperationMaker longer);
    /// From now on all begin as operations.
    void close() noexcept { closed_ = true; }
    bool closed() const noexcept { return closed_; }

 private:
    template <Collective c>
    bool run_as(const engine::CollectiveCall& call, OperationMaker longer);
    template <Collective c>
    bool wait_briefly(const engine::CollectiveCall& call, engine::SlotState& state, std::uint64_t sequence,
                      record::Ticket& ticket);
    bool yield_briefly(const engine::CollectiveCall& call, engine::SlotState& state, std::uint64_t sequence,
                       record::Ticket& ticket);
    bool awaits_only_others_cpus(const engine::CollectiveCall& call, const engine::SlotState& state);
    void go_on(BiasedMutex::Entry& entry, const engine::CollectiveCall& call, const engine::SlotState& state,
               std::uint64_t sequence, record::Ticket ticket, OperationMaker longer);

    Group& group_;
    Collectives& collectives_;
    Flight& flight_;
    Driver& driver_;
    HostMeans& means_;
    transport::Neighbours& neighbours_;
    bool closed_;  // where faults are asked for, or operations counted one by one, and after it has been left
};

}  // namespace tutti::detail
