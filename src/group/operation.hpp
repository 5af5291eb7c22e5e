// Operation: one collective, send or receive on its way through a group; what a Work names.
#pragma once

#include "algorithm/plan.hpp"
#include "core/deadline.hpp"
#include "engine/execution.hpp"
#include "engine/quantized.hpp"
#include "group/faults.hpp"
#include "record/recorder.hpp"

#include <tutti/backend.hpp>
#include <tutti/work.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::detail {

class Group;
class Operation;

/// A collective whose contributions fit into one slot a rank (small.cpp): what it takes to run it.
struct SmallCall {
    Collective collective = Collective::barrier;
    int root = 0;
    const std::byte* input = nullptr;  ///< this rank's contribution, if it makes one
    std::byte* output = nullptr;
    std::size_t block_bytes = 0;  ///< of one rank's block; of the whole where there are no blocks
    std::uint64_t count = 0;      ///< elements that are combined
    DType dtype = DType::uint8;
    ReduceOp::Kind op = ReduceOp::Kind::sum;
    std::uint64_t divisor = 1;
    std::uint64_t fingerprint = 0;

    // all_to_all only.
    std::span<const std::uint64_t> send_counts;  ///< by rank, in elements; empty: every block has `block_bytes`
    std::span<const std::uint64_t> receive_counts;
    std::span<const std::uint64_t> send_offsets;  ///< in elements; empty: one block after the other
    std::span<const std::uint64_t> receive_offsets;
    /// Sets the three. The counts stay where they are.
    void set_blocks(std::span<const std::uint64_t> send, std::span<const std::uint64_t> receive);
    bool large = false;  ///< what this rank sends does not fit: it says so, and all go on with a schedule
    /// Makes the operation with which the call goes on, from `arguments`; null: this description is enough.
    std::shared_ptr<Operation> (*ordinary)(const void* arguments) = nullptr;
    const void* arguments = nullptr;
};
struct SmallState {
    std::uint64_t sequence = 0;  ///< among small collectives; 0: it is not one
    std::uint64_t turn = 0;      ///< among those in which all wait for all; 0: it is not one
    std::size_t head = 0;        ///< bytes in a rank's RankControl before its SmallHead
    bool is_short = false;       ///< that is a ShortSlot's
    bool published = false;
    bool waited = false;  ///< for some rank's contribution
    bool large = false;   ///< some rank's contribution did not fit
    int next = 0;         ///< the rank whose contribution comes next
    static constexpr std::uint64_t unknown = ~std::uint64_t{0};
    std::uint64_t largest = unknown;  ///< all_to_all: bytes of the largest block that has been heard of
    record::Ticket ticket = 0;        ///< 0: it is not recorded yet
};

/// How the recorder sees a collective.
constexpr record::Kind recorded_kind(Collective collective) noexcept {
    switch (collective) {
        case Collective::broadcast:
        case Collective::scatter: return record::Kind::from_root;
        case Collective::reduce:
        case Collective::gather: return record::Kind::to_root;
        default: return record::Kind::collective;
    }
}
constexpr int recorded_root(Collective collective, int root) noexcept {
    return recorded_kind(collective) == record::Kind::collective ? -1 : root;
}

class Operation {
 public:
    // Set before it is submitted.
    const char* name = "";  ///< a literal
    bool is_collective = true;
    bool is_receive = false;
    algorithm::Request request;       // collectives
    engine::Operands operands;        // collectives
    transport::Transfer transfer;     // point to point
    std::function<void()> begin;      // before it is issued: packs inputs
    std::function<void()> finish;     // after success, before completion: unpacks results
    std::vector<Tensor> temporaries;  // live until completion
    std::vector<TensorView> outputs;
    std::pair<const std::byte*, const std::byte*> reads{};  // from the first to the last byte of what is only read
    Device device{};                                        // where its buffers are
    Stream stream{};                                        // on a device: which its caller works with
    std::optional<ReduceOp> premultiplied;                  // on a device: with the factor, for the backend
    std::vector<const void*> input_blocks;                  // on a device, where they do not adjoin
    std::vector<void*> output_blocks;
    Deadline deadline = Deadline::never();
    std::chrono::milliseconds timeout{0};
    std::shared_ptr<Group> group;
    std::shared_ptr<const schedule::Schedule> schedule;      // chosen beforehand; empty: when it starts
    std::unique_ptr<const engine::QuantizedCall> quantized;  // what it does instead of the request

    // Under the group's lock.
    std::uint64_t sequence = 0;
    std::unique_ptr<engine::Running> execution;
    std::optional<std::uint64_t> room;  ///< of an all_to_all whose blocks are being passed on: bytes of a slot
    SmallCall small;
    SmallState small_state;
    Instant started;
    record::Ticket ticket = 0;
    std::optional<ArmedFault> fault;  ///< that TUTTI_FAULTS asks for

    // Of one that is a backend's to run: what it is told.
    std::unique_ptr<BackendRequest> handed_over;
    /// Where it is in its group's list of those, until it is over; under the world's lock.
    std::optional<std::list<std::shared_ptr<Operation>>::iterator> handed_over_at{};

    /// A new one that does the same, on the same buffers and temporaries.
    std::shared_ptr<Operation> again() const;

    bool done() const noexcept { return done_.load(std::memory_order_acquire); }
    /// Done, or in a stream of its device (BackendCompletion::enqueued).
    bool issued() const noexcept { return done() || enqueued_.load(std::memory_order_acquire); }
    /// Once, before it is complete.
    void enqueue(std::shared_ptr<DeviceEvent> event);
    /// What comes into `waiting` from now on waits for one that is issued.
    void make_wait(Stream waiting) const;
    std::exception_ptr error() const noexcept { return done() ? error_ : nullptr; }
    /// Exactly once; run_continuations() follows.
    void complete(std::exception_ptr error) noexcept;
    /// Calls back; what comes later is called at once.
    void run_continuations();
    /// Both, for one that nobody knows yet.
    void complete_unseen() noexcept;
    /// Calls back on completion (at once if that is over).
    void on_completion(std::function<void()> callback);
    /// The same when it is issued.
    void on_issue(std::function<void()> callback);

 private:
    std::atomic<bool> done_{false};
    std::atomic<bool> enqueued_{false};
    std::shared_ptr<DeviceEvent> event_;  // as soon as enqueued_ is set
    std::exception_ptr error_;
    std::mutex mutex_;
    bool told_ = false;  // continuations have been run
    std::vector<std::function<void()>> callbacks_, issue_callbacks_;
};

}  // namespace tutti::detail
