// Collectives: the collectives of a group that are in flight; they run one after the other in the order of their issue.
// The class also detects that other ranks make different calls.
//
// Each collective has a state (OperationState). If all ranks share memory and the call is short, it runs in slots
// (SlotCollectives), otherwise by a schedule (engine/execution); ranks may first relay short blocks of an all_to_all
// for each other (BruckExchange).
//
// Threads: one at a time (the world's lock).
#pragma once

#include "core/queue.hpp"
#include "failure/failure_inquiry.hpp"
#include "group/bruck_exchange.hpp"
#include "group/group_memory.hpp"
#include "group/library_collective.hpp"
#include "group/slot_collectives.hpp"
#include "operation/agreement.hpp"
#include "operation/member.hpp"
#include "operation/operation.hpp"
#include "operation/planner.hpp"
#include "operation/ranks.hpp"
#include "progress/operations_in_flight.hpp"
#include "world/local_policies.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tutti::detail {

class ForeignTransport;

class Collectives final : public IssuedCollectives {
 public:
    /// The parts of a group, of number `index`, and of its world. All must outlive the Collectives.
    struct Parts {
        std::uint32_t index = 0;
        const Ranks& ranks;
        Planner& planner;
        const GroupMemory& memory;
        record::Recorder& recorder;
        FailureInquiry& inquiry;
        OperationsInFlight& flight;
        Verdicts& verdicts;
        const GroupTable& groups;
        LocalPolicies& policies;
        transport::Neighbours& neighbours;
    };
    explicit Collectives(const Parts& parts);

    /// The sequence number of the next collective: equal on all ranks.
    std::uint64_t next_number() noexcept { return ++sequence_; }
    /// Decides how a collective, and all operations made from it, will run.
    void choose_path(Operation& operation);
    /// Appends a collective, which has its number, to the queue.
    void push(const std::shared_ptr<Operation>& operation);
    bool progress() override;
    std::shared_ptr<Operation> front() const noexcept override { return queue_.empty() ? nullptr : queue_.front(); }
    bool ends_before(const rendezvous::Verdict& disagreement) const noexcept override;
    void drop(const std::exception_ptr& error) override;
    /// The ranks whose data for the operation have not arrived.
    std::vector<int> waits_for(const Operation& operation) const;
    void record_waits(Instant since, Instant now) override;
    FailureInquiry& inquiry() noexcept override { return inquiry_; }
    /// The collectives that run in slots.
    SlotCollectives& in_slots() noexcept { return in_slots_; }
    /// The mailbox of the collectives: the world's, unless another transport carries the messages.
    transport::Mailbox& mailbox() const noexcept { return *context_.mailbox; }
    transport::Mailbox& mailbox_of_front() const noexcept override {
        const bool is_compared = !queue_.empty() && queue_.front()->run.state == OperationState::compared;
        return is_compared ? before_library_->mailbox() : mailbox();
    }
    /// A registered transport carries the bytes. Call before the first collective.
    void talk_over(ForeignTransport& transport);
    void check_front(Instant now) override;
    void check_last() override;

    std::uint64_t fingerprint_at(std::uint64_t sequence) const override { return agreement_.fingerprint_at(sequence); }
    bool has_finished(std::uint64_t sequence) const noexcept override;
    bool has_sent_all(int peer, std::uint64_t sequence) const override;

 private:
    /// The result of a turn of the first collective.
    enum class Turn : std::uint8_t {
        blocked,  ///< nothing has moved
        moved,    ///< some data moved; now it waits
        advanced  ///< it has entered its next state
    };

    bool failed() const noexcept { return flight_.failure() != nullptr; }
    Turn take_turn(Operation& operation);
    Turn run(Operation& operation);
    void start(Operation& operation);
    void begin_schedule(Operation& operation);
    bool begin_before_library(Operation& operation);
    void begin_in_library(Operation& operation);
    bool begin_bruck(Operation& operation);
    void end_relay(Operation& operation);
    void execute(Operation& operation);
    void complete(const std::shared_ptr<Operation>& operation, const std::exception_ptr& error);
    /// Injects the fault that TUTTI_FAULTS requests for the operation, if its turn has come.
    void inject_fault(Operation& operation, bool moved, bool ends);
    void probe(const Operation& operation);
    void add_waits(const Operation& operation, std::vector<int>& ranks) const;
    bool has_left(int peer) const;
    std::vector<int> others() const;
    void check_records(std::uint64_t sequence);

    const std::uint32_t index_;
    const Ranks& ranks_;
    Planner& planner_;
    const GroupMemory& memory_;
    record::Recorder& recorder_;
    FailureInquiry& inquiry_;
    OperationsInFlight& flight_;
    Verdicts& verdicts_;
    const GroupTable& groups_;
    LocalPolicies& policies_;
    const bool shares_memory_;  // with all ranks of the group, even if another transport carries the bytes
    ForeignTransport* transport_ = nullptr;
    std::optional<LibraryAgreement> before_library_;  // if a registered transport carries the bytes
    engine::RankContext context_;
    Queue<std::shared_ptr<Operation>> queue_;
    std::uint64_t sequence_ = 0;
    Agreement agreement_;  // about the collectives that this rank has started
    SlotCollectives in_slots_;
    Instant next_probe_{};
    std::vector<int> waited_for_;  // of one call; kept for its memory
    BruckExchange bruck_;
};

}  // namespace tutti::detail
