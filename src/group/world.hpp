// World: the ranks that met in one store, the way to each, and what moves on it.
//
// Any number of groups share a world: its memory, its connections, its lock, its progress thread. Messages name their
// group in their channel. What belongs to one noun is one class: Neighbours and Links (how each rank is reached),
// Health (what is heard of them), GroupTable, Driver (who makes progress). The world holds them, the operations in
// flight and the lock.
//
// A rank that dies, an operation that times out or ranks that disagree end the world with all its groups: what they
// have in common (streams, memory) is in a state that nobody knows.
//
// Threads: any. One mutex guards everything that moves; completions run on the thread that made them happen. Ranks are
// those of the world here; a group's own ranks are its own business.
#pragma once

#include "algorithm/plan.hpp"
#include "core/biased_mutex.hpp"
#include "core/huge_pages.hpp"
#include "core/settings.hpp"
#include "group/channel.hpp"
#include "group/driver.hpp"
#include "group/group_table.hpp"
#include "group/health.hpp"
#include "group/host_sharing.hpp"
#include "group/operation.hpp"
#include "group/spread.hpp"
#include "rendezvous/membership.hpp"
#include "transport/links.hpp"

#include <tutti/process_group.hpp>

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

namespace tutti::detail {

class World final : public std::enable_shared_from_this<World>, private transport::Connector, private Driven {
 public:
    /// Joins; returns when all ranks have come, and this one can reach them. Throws as ProcessGroup's constructor.
    /// `joining`: until when; empty: for the timeout of operations.
    static std::shared_ptr<World> join(const ProcessGroupOptions& options, std::optional<Deadline> joining = {});
    /// Where in a store the ranks of a world of this name meet.
    static Store place_in(const Store& store, const std::string& name);
    ~World() override;
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    // ---- What does not change

    int rank() const noexcept { return rank_; }
    int size() const noexcept { return size_; }
    const std::string& name() const noexcept { return name_; }
    std::uint64_t id() const noexcept { return membership_->world_id(); }
    const Store& store() const noexcept { return store_; }
    /// Of groups that are given none.
    std::chrono::milliseconds timeout() const noexcept { return timeout_; }
    Determinism determinism() const noexcept { return determinism_; }
    /// What a world of some of its ranks inherits.
    TransportKind transport() const noexcept { return sharing_.transport(); }
    const std::string& listen_host() const noexcept { return listen_host_; }
    const algorithm::Layout& layout() const noexcept { return layout_; }
    /// The ranks of this host.
    transport::Neighbours& neighbours() noexcept { return *neighbours_; }
    /// Machines of some ranks, whatever carries their messages.
    int machines_of(const std::vector<int>& ranks) const;
    /// What TUTTI_FAULTS asks of this rank; mostly null.
    Faults* faults() const noexcept { return faults_.get(); }
    transport::Links& links() noexcept { return *links_; }
    Driver& driver() noexcept { return driver_; }
    Waiting& waiting() noexcept { return driver_.waiting(); }
    const Health& health() const noexcept { return health_; }
    /// Of ranks that share CPUs, unless TUTTI_WAIT says how they wait; otherwise null.
    Spread* spread() noexcept { return spread_ ? &*spread_ : nullptr; }

    // ---- Groups

    GroupTable& groups() noexcept { return groups_; }
    const GroupTable& groups() const noexcept { return groups_; }
    /// GroupTable::making(), refused in a forked child.
    [[nodiscard]] std::unique_lock<std::mutex> making() {
        if (inherited_) std::rethrow_exception(failure_);
        return groups_.making();
    }

    // ---- Under the lock

    BiasedMutex& mutex() noexcept { return mutex_; }
    /// The lock, held. What has been completed meanwhile is told when it is free again: continuations may issue more.
    class Held {
     public:
        explicit Held(World& world) : world_(world) { world_.mutex_.lock(); }
        ~Held();
        Held(const Held&) = delete;
        Held& operator=(const Held&) = delete;

     private:
        World& world_;
    };
    /// Nothing is in flight, and nothing is wrong.
    bool quiet() const noexcept { return active_.empty() && messages_.empty() && sound(); }
    bool sound() const noexcept { return !failure_ && !health_.has_news(); }
    const std::exception_ptr& failure() const noexcept { return failure_; }
    bool failing() const noexcept { return failure_ || deferred_; }
    transport::Mailbox& mailbox() noexcept { return *mailbox_; }
    transport::StagingCopy& staging_copy() { return staging_copy_; }
    HugePages& huge_pages() { return huge_pages_; }
    transport::StagingCopy& small_copy() { return small_copy_; }
    /// The group has collectives in flight, from now on until it has none.
    void activate(Group& group);
    void post(const std::shared_ptr<Operation>& message);
    bool progress();
    void hear();          ///< fails, if that is the news
    void heed_mailbox();  ///< does what its findings ask for
    /// Moves an execution on; what fails inside fails when it has returned.
    bool run(engine::Running& execution);
    /// It is over: with an error, or well.
    void complete(std::shared_ptr<Operation> operation, const std::exception_ptr& error);
    /// Ends the world: every operation of every group fails with it.
    void fail(const std::exception_ptr& error);
    /// Why nothing comes from a rank any more: it has left the world, or cannot be reached. All that it sent has been
    /// read, but what waits for that may not have moved on yet. Nothing: something may come.
    std::optional<rendezvous::Verdict> gone(int peer) const;
    /// This process is a fork of the one that joined: nothing can be done here, and nothing may be touched. failure()
    /// says so.
    bool inherited() const noexcept { return inherited_; }
    /// Every rank hears of it; `here`: this one too.
    void tell(const rendezvous::Verdict& verdict, bool here);
    /// Tells every rank of a mismatch or a timeout, and waits until all that can be reached have heard it. True: this
    /// rank is to judge; false: another is.
    bool accuse(const rendezvous::Verdict& accusation);
    /// Fails as the rank says that judges.
    void fail_as_told(ErrorContext context);
    std::vector<int> departed() const;
    /// Health::gone_for_good() of this world; any thread.
    std::vector<int> gone_for_good() const;
    /// Whether that rank's process listens no more: it is dead, or has let go of this world. Takes a round trip.
    bool is_deaf(int rank) const;

    // ---- Not under the lock

    /// Where no thread could be had for that: makes progress for who asks about the operation, or will not wait for it.
    enum class Driving { one_turn, to_the_end };
    void drive_for(Operation& operation, Driving driving);
    /// Blocks until it is complete or the deadline has passed (throws Timeout then).
    void wait(Operation& operation, const Deadline& deadline);
    /// For a blocking call, whose buffers are the caller's again when it throws: as wait(), to the operation's own end;
    /// throws its error.
    /// What a signal interrupts here ends the world, so that nothing writes to them later and no rank waits for this
    /// one.
    void wait_for_call(Operation& operation);
    void abort(const std::string& reason);
    /// As abort where nothing is wrong yet. False: this rank has left.
    bool end(const std::string& reason);
    /// Waits for what this rank has in flight, and until its peers have what was sent to them, but for messages no
    /// longer than the group's time limit; and says goodbye. Receives that nothing has met end with Aborted.
    void leave();
    /// Waits until nothing of the group is in flight here, and forgets it; receives that nothing has met end with
    /// Aborted.
    void leave(Group& group);
    /// Leaves all worlds of this process. Operations still in flight after `limit` end on all ranks with Aborted.
    static void leave_all(std::chrono::milliseconds limit, const std::string& reason) noexcept;
    /// HostSharing::pass_on() of this world.
    void pass_on_host(const std::string& what, std::span<const int> ranks, std::span<UniqueFd> fds,
                      const Deadline& deadline);
    /// While the ranks join: this one cannot.
    void say_failed(const std::exception& error) const;

 private:
    World(const ProcessGroupOptions& options, std::optional<Deadline> joining);

    static std::vector<std::shared_ptr<World>> all();
    void watch_forks();
    void forget_forks();
    static void inherit_all();
    void inherit() noexcept;
    void lay_out(TransportKind kind);
    void take_tuning(const std::string& decision);
    void meet_the_others(const ProcessGroupOptions& options, std::optional<Deadline> joining);
    std::vector<int> lay_out_host();
    void make_links(settings::TcpChecksum checksum);
    std::vector<transport::Checksums> checksums(settings::TcpChecksum kind) const;

    // What links ask for.
    security::Connection connect(int peer, const Deadline& limit) override;
    bool has_incoming() const noexcept override { return membership_->has_incoming(); }
    std::vector<std::pair<int, security::Connection>> take_incoming() override { return membership_->take_incoming(); }
    std::uint64_t next_round() const noexcept override { return membership_->next_round(); }
    bool is_through(std::uint64_t round) const noexcept override { return membership_->is_through(round); }
    // What the driver asks for.
    bool move() override;
    bool is_busy() override;
    void look_after() override;
    bool has_failed() override;
    std::vector<transport::Pollable> pollables() override;
    int news_fd() const noexcept override { return membership_->wake_fd(); }
    void end_of_thread() noexcept override;

    void mismatch(const transport::Finding& finding);
    void damaged(const transport::Finding& finding);
    bool take_connections();
    bool progress_collectives();
    bool progress_messages();
    void slow_checks();
    static void leave_at_exit();
    bool finish(const Deadline& limit);
    void part();
    bool wait_for_collectives(const Group* group, const Deadline& limit);
    std::vector<int> awaited_receivers(const Group* group);
    void give_up(const std::shared_ptr<Operation>& send);
    bool drive_until_none(const char* what, const std::function<std::vector<int>()>& awaited, const Deadline& limit);
    void on_verdict(const rendezvous::Verdict& verdict);
    void apply_verdict();

    int rank_;
    int size_;
    std::string name_;
    Store store_;
    std::chrono::milliseconds timeout_;
    Determinism determinism_;
    std::string listen_host_;
    algorithm::Layout layout_;
    Health health_;
    HostSharing sharing_;
    GroupTable groups_;
    std::unique_ptr<rendezvous::Membership> membership_;  // its thread tells health_, and asks sharing_
    std::unique_ptr<transport::Neighbours> neighbours_;
    std::unique_ptr<transport::Links> links_;
    std::unique_ptr<transport::Mailbox> mailbox_;
    HugePages huge_pages_;
    std::unique_ptr<Faults> faults_;
    transport::StagingCopy staging_copy_, small_copy_;  // of tiles; of short collectives and messages
    std::optional<Spread> spread_;

    BiasedMutex mutex_;
    std::vector<Group*> active_;  // their operations keep them alive
    std::list<std::shared_ptr<Operation>> messages_;
    std::vector<std::shared_ptr<Operation>> completed_;  // whose continuations have not been called yet
    std::exception_ptr failure_;
    bool executing_ = false;       // inside an execution, which must not be destroyed under its feet
    std::exception_ptr deferred_;  // what failed meanwhile
    bool leaving_ = false;         // no receive will come
    bool left_ = false;
    bool inherited_ = false;
    std::exception_ptr if_inherited_;
    Instant next_slow_check_{}, last_slow_check_{};
    Driver driver_;  // last: its thread uses all the rest
};

}  // namespace tutti::detail
