// Group: the ranks of one world, the way to each, and the operations in flight.
//
// Collectives run one after the other in the order of their issue; sends and receives run beside them. Whoever waits,
// drives: progress is made by the thread in wait(), or, while nobody waits, by the group's progress thread, which
// exists from the first asynchronous operation on and sleeps when there is nothing to do.
//
// Threads: any. One mutex guards everything that moves; completions run on the thread that made them happen.
#pragma once

#include "group/operation.hpp"
#include "rendezvous/membership.hpp"
#include "transport/tcp/socket_stream.hpp"

#include <tutti/process_group.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace tutti::detail {

/// The fingerprints of recent collectives, by sequence number.
class History {
 public:
    void put(std::uint64_t sequence, std::uint64_t fingerprint) { entries_[sequence % size] = {sequence, fingerprint}; }
    /// 0 when it is not known (any more).
    std::uint64_t find(std::uint64_t sequence) const {
        const Entry& entry = entries_[sequence % size];
        return entry.sequence == sequence ? entry.fingerprint : 0;
    }

 private:
    static constexpr std::size_t size = 256;
    struct Entry {
        std::uint64_t sequence = 0, fingerprint = 0;
    };
    std::array<Entry, size> entries_;
};

class Group : public std::enable_shared_from_this<Group> {
 public:
    explicit Group(const ProcessGroupOptions& options);
    ~Group();

    int rank() const noexcept { return rank_; }
    int size() const noexcept { return size_; }
    const std::string& name() const noexcept { return name_; }
    Determinism determinism() const noexcept { return determinism_; }
    const std::vector<int>& hosts() const noexcept { return layout_.host_of; }
    std::chrono::milliseconds timeout() const noexcept { return timeout_.load(); }
    void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

    /// Queues the operation; asynchronous ones are progressed in the background.
    void submit(const std::shared_ptr<Operation>& operation, bool asynchronous);
    /// Blocks until it is complete or the deadline has passed (throws Timeout then).
    void wait(Operation& operation, const Deadline& deadline);
    /// Issues it, waits for it, and throws what it failed with.
    void run(const std::shared_ptr<Operation>& operation);
    /// Runs a small collective at once, without an Operation, when nothing else is in flight. `timeout` zero: the
    /// group's. False, and nothing has happened, when it has to go the ordinary way.
    bool run_small(const char* name, const SmallCall& call, std::chrono::milliseconds timeout);
    /// Whether a collective of this shape is a small one. Depends only on what is equal on all ranks.
    bool is_small(Collective collective, std::uint64_t block_bytes) const noexcept;
    void abort(const std::string& reason);
    void leave();

    /// Whether ranks of this host share memory; equal on all of them.
    bool has_symmetric_memory() const noexcept;
    /// Memory with a part of `bytes` for each rank of this host; all of them call it.
    std::shared_ptr<transport::SymmetricSegment> make_symmetric(std::size_t bytes, const Deadline& deadline);
    /// From now on collectives know it. After all ranks of the host have made it.
    void add_symmetric(std::shared_ptr<transport::SymmetricSegment> segment);

 private:
    void connect_shared_memory(const Deadline& deadline);
    UniqueFd pass_on_host(const std::string& what, UniqueFd own, const Deadline& deadline, const AbortFlag* abort);
    transport::Stream* stream_to(int peer);
    bool memory_readable() const;
    const transport::PeerMemory* memory_of(int peer);
    transport::SocketStream& socket_to(int peer);
    bool shares_memory_with(int peer) const noexcept {
        return ground_.arena != nullptr && ground_.local_of[static_cast<std::size_t>(peer)] >= 0;
    }
    void start(Operation& operation);
    bool progress();
    bool progress_collective();
    bool progress_messages();
    void slow_checks();
    bool peer_has_left(int peer);
    void check_records(std::uint64_t sequence, std::uint64_t fingerprint);
    void fail(std::exception_ptr error);
    void on_verdict(const rendezvous::Verdict& verdict);
    void apply_verdict();
    void mismatch(int peer, std::uint64_t sequence, std::uint64_t theirs, std::uint64_t mine, bool tell_others);
    void record(std::uint64_t sequence, std::uint64_t fingerprint);
    ErrorContext context_of(const Operation& operation) const;
    std::string title_of(const Operation& operation) const;
    void time_out(Operation& operation);
    void sleep(std::chrono::milliseconds limit);
    void run_progress_thread();
    bool make_small(Operation& operation) const;
    void remember(std::uint64_t sequence, std::uint64_t fingerprint);
    bool advance(const SmallCall& call, SmallState& state, std::uint64_t sequence);
    bool publish(const SmallCall& call, const SmallState& state);
    void finish(const SmallCall& call, const SmallState& state);
    bool waits_for(const SmallCall& call, int peer) const noexcept;
    std::vector<int> waits_for(const Operation& operation) const;
    std::vector<int> missing(const SmallCall& call, const SmallState& state) const;
    transport::SmallSlot& small_slot(int rank, std::uint64_t small_sequence) const noexcept {
        return arena_->control(rank).small[small_sequence % transport::RankControl::small_slots];
    }
    void drive(Operation& operation, const Deadline& deadline);
    bool uses_shared_memory_only() const noexcept { return arena_ && arena_->layout().ranks == size_; }

    int rank_;
    int size_;
    std::string name_;
    std::atomic<std::chrono::milliseconds> timeout_;
    Determinism determinism_;
    algorithm::Layout layout_;
    std::unique_ptr<rendezvous::Membership> membership_;
    std::shared_ptr<transport::Arena> arena_;
    std::vector<int> rank_of_local_;
    transport::SymmetricMemory symmetric_;
    std::uint64_t symmetric_segments_ = 0;  // made so far; equal on all ranks of the host
    std::vector<std::unique_ptr<transport::Stream>> streams_;
    std::vector<std::optional<transport::PeerMemory>> memories_;  // by rank, opened on first use
    std::vector<Instant> wanted_;                                 // by rank: when a connection was wanted first
    std::unique_ptr<transport::Mailbox> mailbox_;
    engine::Ground ground_;
    int spins_ = 0;  // before yielding

    std::mutex mutex_;
    std::deque<std::shared_ptr<Operation>> collectives_;
    std::list<std::shared_ptr<Operation>> messages_;
    std::uint64_t sequence_ = 0;
    std::uint64_t small_sequence_ = 0;
    std::vector<std::uint64_t> small_seen_;  // by rank: the latest small collective that it has begun, as far as known
    History history_;
    std::exception_ptr failure_;
    bool executing_ = false;       // inside a schedule's step, which must not be destroyed under its feet
    std::exception_ptr deferred_;  // what failed meanwhile
    bool left_ = false;
    Instant next_slow_check_{};
    Instant next_probe_{};
    struct CachedPlan {
        algorithm::Request request;
        std::shared_ptr<const schedule::Schedule> schedule;
    };
    std::shared_ptr<const schedule::Schedule> plan_for(const Operation& operation);
    std::list<CachedPlan> plans_;  // most recent first

    std::mutex verdict_mutex_;
    std::optional<rendezvous::Verdict> verdict_;
    std::vector<int> gone_;  // ranks that said goodbye
    std::atomic<bool> has_verdict_{false};
    AbortFlag bad_news_;  // raised with the verdict

    std::atomic<int> drivers_{0};
    std::condition_variable work_arrived_;
    bool stopping_ = false;
    std::thread progress_thread_;
};

}  // namespace tutti::detail
