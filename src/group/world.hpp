// World: the ranks that met in one store, the way to each, and what moves on it.
//
// Any number of groups share a world: its memory, its connections, its lock, its progress thread. Messages name their
// group in their channel. Whoever waits, drives: progress is made by the thread in wait(), or, while nobody waits, by
// the world's progress thread, which exists from the first asynchronous operation on and sleeps when there is nothing
// to do.
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
#include "core/waiting.hpp"
#include "group/operation.hpp"
#include "group/spread.hpp"
#include "rendezvous/membership.hpp"
#include "transport/shm/offers.hpp"
#include "transport/tcp/socket_stream.hpp"

#include <tutti/process_group.hpp>

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

namespace tutti::detail {

/// Messages of the library's own, in a space that no tag of a caller's reaches: tags are ints.
enum class OwnMessage : std::uint64_t {
    object_head = std::uint64_t{1} << 40,  ///< apart from bodies: a receive from any rank must meet a head
    object_body,
    object_of_gather,
    object_of_scatter,
    barrier_report,
    barrier_answer,
};

/// What a message's channel consists of: a mark of collectives, the group, and a collective's number, a tag or an
/// OwnMessage.
struct Channel {
    static constexpr int group_shift = 44;
    static constexpr std::uint64_t number_mask = (std::uint64_t{1} << group_shift) - 1;
    static constexpr std::uint32_t groups_max = std::uint32_t{1} << (63 - group_shift);

    static constexpr std::uint64_t of_message(std::uint32_t group, std::uint64_t tag) {
        return static_cast<std::uint64_t>(group) << group_shift | tag;
    }
    static constexpr std::uint64_t of_collective(std::uint32_t group, std::uint64_t sequence) {
        return transport::collective_channel | of_message(group, sequence & number_mask);
    }
    static constexpr std::uint32_t group(std::uint64_t channel) {
        return static_cast<std::uint32_t>((channel & ~transport::collective_channel) >> group_shift);
    }
    static constexpr std::uint64_t number(std::uint64_t channel) { return channel & number_mask; }
    /// Of a collective: which one, whatever part of it the channel is for.
    static constexpr std::uint64_t sequence(std::uint64_t channel) {
        return channel & ((std::uint64_t{1} << engine::part_of_channel_shift) - 1);
    }
};

/// Where a world's shared memory is to be found: a descriptor of rank 0's process, -1: nowhere. See Arena::find.
struct OfferedMemory {
    int descriptor = -1;
    std::uint64_t identity = 0;
};

class World : public std::enable_shared_from_this<World> {
 public:
    /// Joins; returns when all ranks have come, and this one can reach them. Throws as ProcessGroup's constructor.
    /// `joining`: until when; empty: for the timeout of operations.
    static std::shared_ptr<World> join(const ProcessGroupOptions& options, std::optional<Deadline> joining = {});
    /// Where in a store the ranks of a world of this name meet.
    static Store place_in(const Store& store, const std::string& name);
    ~World();
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
    TransportKind transport() const noexcept { return transport_; }
    const std::string& listen_host() const noexcept { return listen_host_; }
    const algorithm::Layout& layout() const noexcept { return layout_; }
    /// Ranks of this host in their order; an arena rank is an index of it.
    const std::vector<int>& ranks_of_host() const noexcept { return rank_of_local_; }
    /// -1: on another host.
    int local_of(int rank) const noexcept { return local_of_[static_cast<std::size_t>(rank)]; }
    bool shares_memory_with(int rank) const noexcept { return arena_ && local_of(rank) >= 0; }
    /// The ranks of this host may all read and write each other's memory. Equal on all of them.
    bool reads_memory() const noexcept { return reads_memory_; }
    /// Machines of some ranks, whatever carries their messages.
    int machines_of(const std::vector<int>& ranks) const;
    const std::shared_ptr<transport::Arena>& arena() const noexcept { return arena_; }
    /// What TUTTI_FAULTS asks of this rank; mostly null.
    Faults* faults() const noexcept { return faults_.get(); }
    /// The streams to other ranks that have TCP connections now.
    std::vector<transport::SocketStream*> connected_streams();
    Waiting& waiting() noexcept { return waiting_; }
    /// Of ranks that share CPUs, unless TUTTI_WAIT says what who waits does; otherwise null.
    Spread* spread() noexcept { return spread_ ? &*spread_ : nullptr; }

    // ---- Groups

    void add(std::uint32_t index, const std::shared_ptr<Group>& group);
    /// The group with that number, 0: of all ranks; null: this rank is not in it, or it is gone.
    std::shared_ptr<Group> find(std::uint32_t index) const;
    std::vector<std::shared_ptr<Group>> groups() const;
    /// Numbers of groups and places of their shared memory that all ranks count alike, each making all groups.
    struct Place {
        std::uint32_t index = 0;
        std::uint64_t offset = 0;
    };
    /// Held from agreeing about new groups until they have their numbers: two threads that make groups at once get the
    /// same numbers on all ranks, or an error.
    [[nodiscard]] std::unique_lock<std::mutex> making() {
        if (inherited_) std::rethrow_exception(failure_);
        return std::unique_lock(making_);
    }
    /// Takes `count` numbers, each with `part_bytes` of shared memory; returns the first.
    Place next_place(std::uint32_t count, std::uint64_t part_bytes);
    /// The same for groups that only some ranks make: counted in the store.
    Place next_place_in_store(std::uint32_t count, std::uint64_t part_bytes);

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
    bool sound() const noexcept { return !failure_ && !has_verdict_.load(std::memory_order_relaxed); }
    const std::exception_ptr& failure() const noexcept { return failure_; }
    bool failing() const noexcept { return failure_ || deferred_; }
    transport::Mailbox& mailbox() noexcept { return *mailbox_; }
    /// Null: it cannot be read.
    const transport::PeerMemory* memory_of(int peer);
    transport::StagingCopy& staging_copy() { return staging_copy_; }
    HugePages& huge_pages() { return huge_pages_; }
    transport::StagingCopy& small_copy() { return small_copy_; }
    /// The group has collectives in flight, from now on until it has none.
    void activate(Group& group);
    void post(const std::shared_ptr<Operation>& message);
    bool progress();
    void hear();  ///< fails, if that is the news
    /// Moves an execution on; what fails inside fails when it has returned.
    bool run(engine::Running& execution);
    /// It is over: with an error, or well.
    void complete(std::shared_ptr<Operation> operation, const std::exception_ptr& error);
    /// Ends the world: every operation of every group fails with it.
    void fail(const std::exception_ptr& error);
    /// Why nothing comes from a rank any more: it has left the world, or cannot be reached. All that it sent has been
    /// read, but what waits for that may not have moved on yet. Nothing: something may come.
    std::optional<rendezvous::Verdict> gone(int peer) const;
    /// Whether a rank says that it has left a group. All that it sent there has been read.
    bool has_left(std::uint32_t group, int peer) const { return left_groups_.contains({group, peer}); }
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
    /// Ranks that show no sign of life; they are stopped, or cut off.
    std::vector<int> silent() const;
    /// Ranks that have died or said goodbye, as far as this rank has heard; any thread.
    std::vector<int> gone_for_good() const;
    /// Whether that rank's process listens no more: it is dead, or has let go of this world. Takes a round trip.
    bool is_deaf(int rank) const;

    // ---- Not under the lock

    /// Somebody has to make progress while nobody waits.
    void drive_in_background();
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
    /// The first of `ranks` (of this host) passes its descriptors to the others, which get theirs of the same things.
    void pass_on_host(const std::string& what, std::span<const int> ranks, std::span<UniqueFd> fds,
                      const Deadline& deadline, const AbortFlag* abort);
    /// While the ranks join: this one cannot.
    void say_failed(const std::exception& error) const;
    const AbortFlag& bad_news() const noexcept { return bad_news_; }

    /// Where buffers of the group of all ranks may lie; messages know it.
    transport::SymmetricMemory& symmetric() noexcept { return symmetric_; }

 private:
    World(const ProcessGroupOptions& options, std::optional<Deadline> joining);

    /// While it lives a thread drives, and the progress thread need not.
    class Driver {
     public:
        explicit Driver(World& world) : world_(world) { ++world_.drivers_; }
        ~Driver();
        Driver(const Driver&) = delete;
        Driver& operator=(const Driver&) = delete;

     private:
        World& world_;
    };

    static std::vector<std::shared_ptr<World>> all();
    void watch_forks();
    void forget_forks();
    static void inherit_all();
    void inherit() noexcept;
    void lay_out(TransportKind kind);
    void take_tuning(const std::string& decision);
    void make_mailbox();
    // host.cpp
    void meet_the_others(const ProcessGroupOptions& options, std::optional<Deadline> joining);
    std::string prepare_memory();
    OfferedMemory offer_memory(const std::vector<rendezvous::Card>& cards);
    std::string why_not_shared(const std::vector<rendezvous::Card>& cards) const;
    void go_without_memory(const std::string& why);
    void lay_out_host();
    void connect_shared_memory(const OfferedMemory& offer, const Deadline& deadline);
    void share_offered(const OfferedMemory& offer, const Deadline& deadline);
    void share_by_hand(const Deadline& deadline);
    void give_memory(const UniqueFd& visitor) const;
    void agree_about_memory(const Deadline& deadline);
    void check_attachments(const Deadline& deadline) const;
    std::string door_of(const std::string& what, int first) const;
    bool hand_over(const UniqueFd& to, const std::string& what, std::span<const UniqueFd> fds, const Deadline& deadline,
                   const AbortFlag* abort) const;
    void receive_from_first(const std::string& what, int first, std::span<UniqueFd> fds, const Deadline& deadline,
                            const AbortFlag* abort) const;
    bool reaches_neighbours() const;
    transport::Stream* stream_to(int peer);
    transport::Checksums checksums_with(int peer) const;
    transport::SocketStream& socket_to(int peer);
    void add_lane(int peer, transport::SocketStream& socket);
    transport::Stream* open_stream_to(int peer);
    bool has_connection_to(int peer) const;
    void take_back_offers() noexcept;
    bool uses_shared_memory_only() const noexcept { return arena_ && arena_->layout().ranks == size_; }

    std::uint64_t fingerprint_of(std::uint64_t channel) const;
    void mismatch(int peer, std::uint64_t channel, std::uint64_t theirs, std::uint64_t mine, std::size_t their_bytes,
                  std::size_t my_bytes);
    bool progress_collectives();
    bool progress_messages();
    bool take_connections();
    void slow_checks();
    void drive(Operation& operation, const Deadline& deadline);
    void sleep(std::chrono::milliseconds limit);
    void start_progress_thread();
    void run_progress_thread();
    void unpark();
    bool park();  ///< false: nobody wants this thread to drive
    static void leave_at_exit();
    bool finish(const Deadline& limit);
    void part();
    bool wait_for_collectives(const Group* group, const Deadline& limit);
    std::vector<int> awaited_receivers(const Group* group);
    void give_up(const std::shared_ptr<Operation>& send);
    bool drive_until_none(const char* what, const std::function<std::vector<int>()>& awaited, const Deadline& limit);
    bool has_left(std::uint64_t channel) const;
    void on_verdict(const rendezvous::Verdict& verdict);
    void note(const rendezvous::Verdict& verdict);
    void apply_verdict();
    rendezvous::Verdict await_judgement();

    int rank_;
    int size_;
    std::string name_;
    Store store_;
    std::chrono::milliseconds timeout_;
    Determinism determinism_;
    TransportKind transport_;
    std::string listen_host_;
    algorithm::Layout layout_;
    std::shared_ptr<transport::Arena> arena_;
    std::unique_ptr<rendezvous::Membership> membership_;  // its thread hands the arena over
    std::vector<int> local_of_, rank_of_local_;
    bool reads_memory_ = false;
    transport::Congestion congestion_;
    transport::Lanes lanes_;
    settings::TcpChecksum checksum_ = settings::TcpChecksum::automatic;
    transport::SocketTime socket_time_;
    transport::SymmetricMemory symmetric_;
    std::vector<std::unique_ptr<transport::Stream>> streams_;
    std::vector<std::optional<transport::PeerMemory>> memories_;  // by rank, opened on first use
    std::vector<Instant> wanted_;                                 // by rank: when a connection was wanted first
    struct Unreachable {
        Instant since;
        std::string why;
        std::uint64_t round;  // of the membership: who had connected to this rank by then is known after it
    };
    std::map<int, Unreachable> unreachable_;  // ranks that could not be connected to
    std::unique_ptr<transport::Mailbox> mailbox_;
    std::optional<transport::Offers> offers_;  // where ranks of this host share memory
    HugePages huge_pages_;
    std::unique_ptr<Faults> faults_;
    transport::StagingCopy staging_copy_, small_copy_;  // of tiles; of short collectives and messages
    Waiting waiting_, background_waiting_;              // of the threads that call, and of the progress thread
    std::optional<Spread> spread_;

    BiasedMutex mutex_;
    std::vector<Group*> active_;  // their operations keep them alive
    std::list<std::shared_ptr<Operation>> messages_;
    std::vector<std::shared_ptr<Operation>> completed_;  // whose continuations have not been called yet
    std::exception_ptr failure_;
    bool executing_ = false;       // inside an execution, which must not be destroyed under its feet
    std::exception_ptr deferred_;  // what failed meanwhile
    bool leaving_ = false;         // no receive will come
    bool ending_ = false;          // nothing will be sent
    bool left_ = false;
    struct Break {
        Instant when;
        std::string why;
    };
    std::map<int, Instant> ended_streams_;                 // ranks that have ended theirs
    std::map<int, Break> broken_;                          // ranks whose stream broke off
    std::set<std::pair<std::uint32_t, int>> left_groups_;  // (group, rank) of groups that others have left
    bool inherited_ = false;
    std::exception_ptr if_inherited_;
    std::uint32_t next_index_ = 1;  // 0: the group of all ranks
    std::uint64_t next_offset_ = 0;
    Instant next_slow_check_{}, last_slow_check_{};

    std::mutex making_;
    mutable std::mutex groups_mutex_;
    std::map<std::uint32_t, std::weak_ptr<Group>> groups_;
    std::set<std::uint32_t> ended_;  // groups that this rank has left

    mutable std::mutex verdict_mutex_;
    std::condition_variable judged_;
    std::optional<rendezvous::Verdict> verdict_;
    std::optional<rendezvous::Verdict> accusation_;  // the one that counts
    std::optional<rendezvous::Verdict> judgement_;
    std::set<int> silent_;
    std::set<int> goodbyes_;  // ranks that have left
    std::set<int> gone_for_good_;
    std::set<int> on_lost_hosts_;  // one of each host
    std::atomic<bool> has_verdict_{false};
    AbortFlag bad_news_;  // raised with the verdict

    std::atomic<int> drivers_{0};
    std::atomic<bool> asleep_{false};  // one of this rank's threads is in sleep()
    // Where the progress thread waits while there is nothing to do, or another thread drives.
    std::mutex parking_mutex_;
    std::condition_variable unparked_;
    std::atomic<bool> parked_{false};
    std::atomic<bool> work_waits_{false};
    std::atomic<bool> stopping_{false};
    int progress_nice_;
    std::atomic<bool> lacks_thread_{false};  // none could be had for it
    std::thread progress_thread_;
};

}  // namespace tutti::detail
