// World: the ranks that joined in one store, the connections to them, and the messages on these connections.
//
// Any number of groups share a world: its memory, its connections, its lock, its progress thread. The channel of each
// message names its group. A world has one object of each of these classes: Neighbours and Links (the ways to other
// ranks), GroupTable, OperationsInFlight (operations in flight, and their lock), Driver (the threads that make
// progress), Verdicts (how ranks accuse each other and fail together), Departure (how this rank leaves). The world
// constructs them when it is joined, and waits for operations.
//
// If a rank dies, an operation times out, or ranks disagree, the world ends with all its groups, since the shared
// streams and memory are then in an unknown state.
//
// Threads: any. One mutex (OperationsInFlight) guards all changing state; operations complete on the thread that
// drives. Ranks are the world's here; a group's Ranks translates its ranks.
#pragma once

#include "algorithm/plan.hpp"
#include "core/settings.hpp"
#include "failure/verdicts.hpp"
#include "operation/channel.hpp"
#include "operation/group_table.hpp"
#include "operation/operation.hpp"
#include "progress/driver.hpp"
#include "progress/operations_in_flight.hpp"
#include "rendezvous/membership.hpp"
#include "transport/links.hpp"
#include "world/departure.hpp"
#include "world/host_sharing.hpp"
#include "world/local_policies.hpp"

#include <tutti/process_group.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

namespace tutti::detail {

/// What a rank knows of its world before the other ranks join.
struct WorldSetup {
    int rank = 0;
    int size = 1;
    std::string name;
    Store store;                           ///< for this world only; none before the ranks have met
    std::chrono::milliseconds timeout{0};  ///< default timeout of its groups
    Determinism determinism = Determinism::fast;
    std::string listen_host;
};

/// How this rank waits for the others when it joins a world.
struct JoiningTerms {
    std::optional<Deadline> deadline{};  ///< empty: the timeout of operations
    std::string terms{};                 ///< text that must be equal on all ranks
    std::function<void()> check{};       ///< as MembershipOptions::check
};

class World final : public std::enable_shared_from_this<World> {
 public:
    /// Joins a world; returns when all ranks have joined, and this one can reach them. Throws as ProcessGroup's
    /// constructor. `attempt`: one in options.store, which the world takes over.
    static std::shared_ptr<World> join(const ProcessGroupOptions& options, rendezvous::Attempt& attempt,
                                       const JoiningTerms& joining = {});
    ~World();
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    const WorldSetup& setup() const noexcept { return setup_; }
    int rank() const noexcept { return setup_.rank; }
    int size() const noexcept { return setup_.size; }
    const std::string& name() const noexcept { return setup_.name; }
    std::uint64_t id() const noexcept { return membership_->world_id(); }
    /// The transport as requested, or tcp if memory cannot be shared. A world of the survivors inherits it.
    TransportKind transport() const noexcept { return sharing_.transport(); }
    const algorithm::Layout& layout() const noexcept { return layout_; }
    /// The number of machines on which the ranks run, whatever the transport.
    int machines_of(const std::vector<int>& ranks) const;
    /// The first of `ranks` (of this host) passes its descriptors to the others; `fds` of the others receive
    /// duplicates.
    void pass_on_host(const std::string& what, std::span<const int> ranks, std::span<UniqueFd> fds,
                      const Deadline& deadline);

    LocalPolicies& policies() noexcept { return policies_; }
    GroupTable& groups() noexcept { return groups_; }
    const GroupTable& groups() const noexcept { return groups_; }
    /// GroupTable::making(), refused in a forked child.
    [[nodiscard]] std::unique_lock<std::mutex> making();
    transport::Neighbours& neighbours() noexcept { return *neighbours_; }
    transport::Links& links() noexcept { return *links_; }
    Verdicts& verdicts() noexcept { return verdicts_; }
    OperationsInFlight& flight() noexcept { return flight_; }
    Driver& driver() noexcept { return driver_; }
    /// How this rank leaves the world, or one of its groups.
    Departure& departure() noexcept { return departure_; }

    /// Whether this process is a fork of the one that joined: then every function but the destructor throws, without
    /// effect. OperationsInFlight::failure() says so.
    bool inherited() const noexcept { return inherited_; }
    void inherit() noexcept;

    // ---- Not under the lock

    /// If the system could not create a progress thread: a caller that polls the operation, or will not wait for it,
    /// makes progress itself by this function.
    enum class Driving { one_turn, to_the_end };
    void drive_for(Operation& operation, Driving driving);
    /// Blocks until the operation is complete; throws Timeout if the deadline passes first.
    void wait(Operation& operation, const Deadline& deadline) { wait(operation, deadline, driver_.waiting()); }
    /// The same, in the way of `waiting`, which learns from it.
    void wait(Operation& operation, const Deadline& deadline, Waiting& waiting);
    /// For a blocking call, whose buffers belong to the caller again when it throws: waits until the operation ends (on
    /// a device: is issued), and throws its error. A signal that interrupts the call ends the world, so that nothing
    /// writes to the buffers later and no rank waits for this one.
    void wait_for_call(Operation& operation) { wait_for_call(operation, driver_.waiting()); }
    void wait_for_call(Operation& operation, Waiting& waiting);
    void abort(const std::string& reason);
    /// As abort(), unless the world has failed already. False: this rank has left the world.
    bool end(const std::string& reason);
    /// The error with which the world has failed, also by news that no thread has looked at; null: it works.
    std::exception_ptr failure();

 private:
    World(const ProcessGroupOptions& options, rendezvous::Attempt& attempt, const JoiningTerms& joining);

    void meet_the_others(const ProcessGroupOptions& options, rendezvous::Attempt& attempt, const JoiningTerms& joining);
    void take_tuning(const std::string& decision);
    void make_links(settings::TcpChecksum checksum);

    class Dialer;

    WorldSetup setup_;
    algorithm::Layout layout_;
    LocalPolicies policies_;
    GroupTable groups_;
    Verdicts verdicts_;
    OperationsInFlight flight_;
    HostSharing sharing_;
    std::unique_ptr<rendezvous::Membership> membership_;  // its thread calls verdicts_, sharing_ and driver_
    std::unique_ptr<Dialer> dialer_;                      // makes connections for the links
    std::unique_ptr<transport::Neighbours> neighbours_;
    std::unique_ptr<transport::Links> links_;
    std::unique_ptr<transport::Mailbox> mailbox_;
    Departure departure_;
    bool inherited_ = false;
    std::exception_ptr if_inherited_;
    Driver driver_;  // last, since its thread uses all other members
};

}  // namespace tutti::detail
