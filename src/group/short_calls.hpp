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

    /// Runs a short collective without an Operation, when nothing else is in flight. `timeout` zero: the group's. Where
    /// it has to go the ordinary way, does nothing and returns false.
    bool run(const char* name, const engine::SlotCall& call, std::chrono::milliseconds timeout,
             OrdinaryCall ordinary = {});
    /// From now on all go the ordinary way.
    void close() noexcept { closed_ = true; }
    bool closed() const noexcept { return closed_; }

 private:
    template <Collective c>
    bool run_as(const char* name, const engine::SlotCall& call, std::chrono::milliseconds timeout,
                OrdinaryCall ordinary);
    template <Collective c>
    bool wait_briefly(const engine::SlotCall& call, engine::SlotState& state, std::uint64_t sequence,
                      record::Ticket& ticket);
    bool yield_briefly(const engine::SlotCall& call, engine::SlotState& state, std::uint64_t sequence,
                       record::Ticket& ticket);
    bool awaits_only_others_cpus(const engine::SlotCall& call, const engine::SlotState& state);
    void go_on(BiasedMutex::Entry& entry, const char* name, const engine::SlotCall& call,
               const engine::SlotState& state, std::uint64_t sequence, record::Ticket ticket,
               std::chrono::milliseconds timeout, OrdinaryCall ordinary);

    Group& group_;
    Collectives& collectives_;
    Flight& flight_;
    Driver& driver_;
    HostMeans& means_;
    transport::Neighbours& neighbours_;
    bool closed_;  // where faults are asked for, or operations counted one by one, and after it has been left
};

}  // namespace tutti::detail
