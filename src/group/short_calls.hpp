// ShortCalls: runs collectives in the slots of the ranks of this host (engine/slots), in the caller's thread, which
// spins for a moment. If the call takes longer, it becomes an operation, which can time out, sleep and be interrupted.
//
// Threads: any.
#pragma once

#include "core/biased_mutex.hpp"
#include "core/waiting.hpp"
#include "engine/slots.hpp"
#include "operation/operation.hpp"
#include "operation/ranks.hpp"
#include "record/recorder.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace tutti::transport {
class Neighbours;
}

namespace tutti::detail {

class Collectives;
class Driver;
class OperationsInFlight;
struct LocalPolicies;

class ShortCalls {
 public:
    /// The parts of a group, and of its world. All must outlive it.
    struct Parts {
        const Ranks& ranks;
        Collectives& collectives;
        record::Recorder& recorder;
        OperationsInFlight& flight;
        Driver& driver;
        LocalPolicies& policies;
        const transport::Neighbours& neighbours;
        /// Waits for an operation in the way of `Waiting`, and throws its error (World::wait_for_call).
        std::function<void(Operation&, Waiting&)> wait_for_call;
    };
    explicit ShortCalls(Parts parts);

    /// Runs a short collective if nothing else is in flight; if it takes longer than a moment, makes it an operation
    /// with `longer` and waits for this. Returns false, without effect, if the call has to begin as an operation.
    bool run(const engine::CollectiveCall& call, OperationMaker longer);
    /// From now on all calls begin as operations.
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
    Waiting& waiting_of(const engine::CollectiveCall& call, std::uint64_t sequence) const noexcept;
    bool awaits_only_others_cpus(const engine::CollectiveCall& call, const engine::SlotState& state);
    void go_on(BiasedMutex::Entry& entry, const engine::CollectiveCall& call, const engine::SlotState& state,
               std::uint64_t sequence, record::Ticket ticket, OperationMaker longer);

    const Ranks& ranks_;
    Collectives& collectives_;
    record::Recorder& recorder_;
    OperationsInFlight& flight_;
    Driver& driver_;
    LocalPolicies& policies_;
    const transport::Neighbours& neighbours_;
    const std::function<void(Operation&, Waiting&)> wait_for_call_;
    std::atomic<std::uint64_t> last_{
        0};        // the latest collective that ended in slots, so that no rank is in an earlier one
    bool closed_;  // if TUTTI_FAULTS is set or the recorder counts operations, and after the group has been left
};

}  // namespace tutti::detail
