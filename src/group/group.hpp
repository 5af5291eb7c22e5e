// Group: an ordered subset of a world's ranks, and the collectives among them.
//
// Collectives of one group run one after the other in the order of their issue; collectives of different groups, and
// messages, run concurrently. Ranks here are the group's, except where a comment says otherwise.
//
// Threads: any; the world's lock guards all changing state.
#pragma once

#include "backend/registry.hpp"
#include "failure/failure_inquiry.hpp"
#include "group/collectives.hpp"
#include "group/foreign_backends.hpp"
#include "group/group_memory.hpp"
#include "group/short_calls.hpp"
#include "operation/operation.hpp"
#include "operation/planner.hpp"
#include "operation/ranks.hpp"
#include "record/recorder.hpp"
#include "world/world.hpp"

#include <tutti/process_group.hpp>

#include <atomic>
#include <memory>
#include <optional>

namespace tutti::detail {

/// For a group that ProcessGroup::shrink makes: the failed group that it replaces.
struct PredecessorGroup {
    std::shared_ptr<const Group> of{};
    std::vector<int> left_out{};  ///< ranks of the failed group, ascending
};

/// How to join a world.
struct Coming {
    rendezvous::Attempt::Worlds worlds_in_store = rendezvous::Attempt::Worlds::many;
    JoiningTerms joining{};
    std::string description{};
    PredecessorGroup predecessor{};
    int senior = 0;  ///< as SubgroupSpec
    bool is_newcomer = false;
};

struct SubgroupSpec {
    GroupPlace place;
    std::vector<int> members;  ///< ranks of the world, in the order of the group
    std::string name;
    std::string description;
    std::chrono::milliseconds timeout{0};
    backend::Devices backends{};  ///< empty: native
    std::any pg_options{};
    std::optional<Device> device{};         ///< to which this process is bound
    std::shared_ptr<const Group> parent{};  ///< all of its ranks make the new group together
    PredecessorGroup predecessor{};
    int senior = 0;            ///< the lowest rank that is no newcomer (ProcessGroup::grow)
    bool is_newcomer = false;  ///< this process is one
};

class Group final : public Member, public std::enable_shared_from_this<Group> {
 public:
    /// The group of all ranks of a new world. Throws as ProcessGroup's constructor.
    static std::shared_ptr<Group> of_all(const ProcessGroupOptions& options, Coming coming = {});
    /// Makes a group of which this rank is a member. Ranks exchange nothing: all members must pass equal arguments.
    static std::shared_ptr<Group> of_some(const std::shared_ptr<World>& world, SubgroupSpec spec);
    ~Group() override;

    World& world() const noexcept { return *world_; }
    const std::shared_ptr<World>& shared_world() const noexcept { return world_; }
    std::uint32_t index() const noexcept override { return index_; }
    const Ranks& ranks() const noexcept override { return ranks_; }
    int rank() const noexcept { return ranks_.rank(); }
    int size() const noexcept { return ranks_.size(); }
    record::Recorder& recorder() noexcept override { return recorder_; }
    FailureInquiry& inquiry() noexcept override { return inquiry_; }
    const std::string& name() const noexcept override { return name_; }
    const std::string& description() const noexcept { return description_; }
    Determinism determinism() const noexcept { return world_->setup().determinism; }
    std::chrono::milliseconds timeout() const noexcept { return timeout_.load(); }
    void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
    /// Whether the group supports tensors on that device.
    bool serves(Device::Type device) const noexcept {
        return device == Device::Type::cpu ? backends_->serve_host() : backends_->names().contains(device);
    }
    ForeignBackends& backends() const noexcept { return *backends_; }
    ForeignTransport* transport() const noexcept override { return backends_->transport(); }
    transport::Mailbox& mailbox() const noexcept override { return collectives_.mailbox(); }

    /// Queues the operation; asynchronous ones are progressed in the background.
    void submit(const std::shared_ptr<Operation>& operation, bool asynchronous);
    /// Decides how a collective that is not issued yet, and all operations made from it, will run: gives it a schedule
    /// unless it runs in slots.
    void choose_way(Operation& operation);
    /// Issues the operation, waits for it, and throws its error.
    void run(const std::shared_ptr<Operation>& operation);
    /// ShortCalls::run.
    bool run_short(const engine::CollectiveCall& call, OperationMaker longer) { return short_calls_.run(call, longer); }
    /// Sends a short message to a rank (of the world) on this host at once; `payload` may be overwritten when it
    /// returns. If the message needs an operation, returns false without effect.
    bool send_now(int peer, std::uint64_t channel, std::uint64_t fingerprint, std::span<const std::byte> payload);
    /// Receives a short message from a rank of this host if it has arrived or arrives within a moment, and nothing else
    /// is in flight. False: the receive needs an operation.
    bool receive_now(transport::Transfer& receive);
    /// Looks once for a message that fits the probe or claim, which then describes it; false: none has come. Moves what
    /// is in flight. Throws the group's failure, and PeerLost when the named source has left and sends nothing more.
    bool probe_now(transport::Transfer& probe, const char* name);
    /// Gives a claimed message back (transport::Mailbox::release).
    void release(std::uint64_t channel, std::uint64_t message);
    Planner& planner() noexcept { return planner_; }
    const Planner& planner() const noexcept { return planner_; }
    Collectives& collectives() noexcept override { return collectives_; }
    /// How many times this rank has asked for a smaller group, including this time; equal on all ranks that ask.
    int next_shrink() noexcept { return ++shrinks_; }
    /// The same for a larger one.
    int next_growth() noexcept { return ++growths_; }
    int senior() const noexcept { return senior_; }
    bool is_newcomer() const noexcept { return is_newcomer_; }
    /// The number of the window that all ranks of the group are about to make; equal on all ranks.
    std::uint32_t next_window() noexcept { return ++windows_; }
    /// The number of the NeighborGraph that all ranks of the group are about to make; equal on all ranks.
    std::uint32_t next_neighbor_graph() noexcept { return ++neighbor_graphs_; }
    /// Ends the group, and with it the world.
    void abort(const std::string& reason) { world_->abort(reason); }
    /// Waits for this rank's operations in flight; the group of all ranks then leaves the world.
    void leave();

    GroupMemory& memory() noexcept { return memory_; }
    const GroupMemory& memory() const noexcept { return memory_; }
    /// GroupMemory::make_symmetric on all ranks of this host.
    std::shared_ptr<transport::SymmetricSegment> make_symmetric(std::size_t bytes, const Deadline& deadline);

    // ---- For the world, under its lock unless a comment says otherwise

    /// Records that the operation is issued, whether the group or a backend runs it. Throws if the group accepts no
    /// more.
    void begin(const std::shared_ptr<Operation>& operation);
    void end(const std::shared_ptr<Operation>& operation, const std::exception_ptr& error) override;
    void end_handed_over(const std::exception_ptr& failure) override { backends_->end(failure); }
    void wait(Operation& operation, const Deadline& deadline) override { world_->wait(operation, deadline); }
    void wait_for_handed_over(Operation& operation, const Deadline& deadline) override {
        backends_->wait_for(operation, deadline);
    }
    void wait_until_issued(Operation& operation) override { backends_->wait_until_issued(operation); }

 private:
    explicit Group(std::shared_ptr<World> world, SubgroupSpec spec);
    /// Throws if the group accepts no more operations.
    void refuse_if_over(const char* name) const;

    static algorithm::Layout layout_of(World& world, const Ranks& ranks);

    const std::shared_ptr<World> world_;
    const std::uint32_t index_;
    const Ranks ranks_;
    const std::string name_, description_;
    std::atomic<std::chrono::milliseconds> timeout_;
    const int senior_;
    const bool is_newcomer_;
    Planner planner_;
    record::Recorder recorder_;
    FailureInquiry inquiry_;
    GroupMemory memory_;
    Collectives collectives_;
    ShortCalls short_calls_;
    bool left_ = false;
    std::unique_ptr<ForeignBackends> backends_;
    std::atomic<int> shrinks_{0}, growths_{0};
    std::atomic<std::uint32_t> windows_{0}, neighbor_graphs_{0};
};

/// The group of an operation; every Member is a Group.
inline Group& group_of(const Operation& operation) noexcept {
    return static_cast<Group&>(*operation.group);
}
/// The group of all ranks of a world; null: it has been destroyed.
inline std::shared_ptr<Group> group_of_all(const World& world) {
    return std::static_pointer_cast<Group>(world.groups().find(0));
}

}  // namespace tutti::detail
