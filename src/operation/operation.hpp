// Operation: one collective, send or receive in progress in a group; a Work refers to one.
#pragma once

#include "core/deadline.hpp"
#include "engine/call.hpp"
#include "engine/execution.hpp"
#include "engine/slots.hpp"
#include "operation/completion.hpp"
#include "operation/faults.hpp"
#include "operation/member.hpp"
#include "operation/planner.hpp"
#include "record/recorder.hpp"

#include <tutti/backend.hpp>
#include <tutti/work.hpp>

#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::detail {

class Operation;

/// Makes the operation that continues a short call, if the call takes longer than a moment or is not short for other
/// ranks: make(call).
struct OperationMaker {
    std::shared_ptr<Operation> (*make)(const void* call);
    const void* call;
};

/// The recorder's kind of a collective.
constexpr record::Kind recorded_kind(Collective collective) noexcept {
    switch (traits_of(collective).root) {
        case CollectiveTraits::Root::source: return record::Kind::from_root;
        case CollectiveTraits::Root::target: return record::Kind::to_root;
        case CollectiveTraits::Root::none: break;
    }
    return record::Kind::collective;
}
constexpr int recorded_root(Collective collective, int root) noexcept {
    return recorded_kind(collective) == record::Kind::collective ? -1 : root;
}

/// The state of a collective that the group itself runs.
enum class OperationState : std::uint8_t {
    queued,     ///< behind other collectives of its group
    in_slots,   ///< the ranks of a host exchange it in slots
    relayed,    ///< ranks relay its blocks for each other
    compared,   ///< ranks check that all make the same call, before a transport's library carries it out
    scheduled,  ///< a schedule moves its data
    over,       ///< complete, or about to be completed, with success or an error
};
/// Blocks that do not fit in slots, or could not be relayed, continue with a schedule. Any state may end with an error.
constexpr bool may_move(OperationState from, OperationState to) noexcept {
    using enum OperationState;
    switch (to) {
        case queued: return false;
        case in_slots: return from == queued;
        case relayed: return from == queued || from == in_slots;
        case compared: return from == queued;
        case scheduled: return from != scheduled && from != over;
        case over: return from != over;
    }
    return false;
}

/// Arguments of a device's backend, in addition to the call.
struct DeviceArguments {
    std::optional<ReduceOp> premultiplied{};  ///< with its factor
    std::vector<const void*> input_blocks{};  ///< if the blocks do not adjoin
    std::vector<void*> output_blocks{};
};

/// The quantised form of a collective: its schedule's request, and this rank's own parameters.
struct QuantizedCall {
    algorithm::Request request;
    engine::Coding coding;
    std::uint64_t counted_bytes = 0;  ///< for the counters, instead of the bytes of its elements
};

/// The state of an operation that a backend runs.
struct HandedOver {
    std::unique_ptr<BackendRequest> request;  ///< null: tutti runs it itself
    /// Its entry, until it is complete, in the group's list of operations handed over; under the world's lock.
    std::optional<std::list<std::shared_ptr<Operation>>::iterator> place{};
};

/// The state of one run of an operation: plans and graphs run an operation repeatedly.
struct Run {
    std::uint64_t sequence = 0;                           ///< its number among its group's collectives
    OperationState state = OperationState::queued;        ///< changes by Operation::move_to()
    std::unique_ptr<engine::Running> execution{};         ///< if relayed, compared or scheduled
    std::unique_ptr<engine::Execution> done_execution{};  ///< of a planned operation, kept for its next run
    std::exception_ptr failed{};                          ///< an error of this operation alone, from the library that
                                                          ///< ran it
    std::uint64_t channel = 0;                            ///< of its messages, once the schedule has begun
    engine::SlotState slot_state{};                       ///< sequence 0: not in slots, or not begun
    Instant started{};
    record::Ticket ticket = 0;
    std::optional<ArmedFault> fault{};  ///< from TUTTI_FAULTS
};

class Operation : public Completion {
 public:
    // Set before the operation is submitted.
    const char* name = "";  ///< a literal
    bool is_collective = true;
    bool is_receive = false;
    bool caller_goes_on = false;      // asynchronous: its caller will compute before it waits
    bool is_of_service = false;       // internal, serves other ranks' calls: not recorded
    bool planned = false;             // belongs to a plan: is likely to run again (renew)
    bool is_symmetric = false;        // a collective whose group had symmetric memory at the call
    engine::CollectiveCall call;      // collectives: contiguous buffers, and what ranks agree on
    transport::Transfer transfer;     // point to point
    std::function<void()> begin;      // before it is issued: packs inputs
    std::function<void()> finish;     // after success, before completion: unpacks results
    std::vector<Tensor> temporaries;  // live until completion
    std::vector<TensorView> outputs;
    std::pair<const std::byte*, const std::byte*> reads{};  // the first and last byte that are only read
    Device device{};                                        // where its buffers are
    Stream stream{};                                        // on a device: the stream of the caller's work
    DeviceArguments on_device;
    Deadline deadline = Deadline::never();
    std::chrono::milliseconds timeout{0};
    std::shared_ptr<Member> group;
    std::optional<Path> path{};  // of a collective that the group runs: set when issued or planned
    std::shared_ptr<const schedule::Schedule> schedule;  // chosen in advance; null: chosen at the start
    std::unique_ptr<const QuantizedCall> quantized;      // in addition to `call`
    std::function<void()> when_awaited;  // for a call that a graph has captured and nobody issues: replaces waiting

    Run run;  // under the group's lock
    HandedOver handed_over;

    /// Throws InternalError if may_move() forbids it.
    void move_to(OperationState next);
    /// The operands of its schedule; in an in-place call, the output also holds the input.
    engine::Operands operands() const;
    /// Copies the call and its lists of counts and offsets, so that the operation owns them.
    void set_call(const engine::CollectiveCall& from);
    /// A new operation that makes the same call, on the same buffers and temporaries.
    std::shared_ptr<Operation> again() const;
    /// Prepares this complete operation for another run as `model`, from which it was made, without allocation. No
    /// other thread may have access to it.
    void renew(const Operation& model);

 private:
    std::vector<std::uint64_t> numbers_;  // of the call's blocks
    OperatorHandle user_;                 // the call's operator
};

}  // namespace tutti::detail
