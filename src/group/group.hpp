// Group: the ranks of one world, the way to each, and the operations in flight.
//
// Collectives run one after the other in the order of their issue; sends and receives run beside them. Whoever waits,
// drives: progress is made by the thread in wait(), or, while nobody waits, by the group's progress thread, which
// exists from the first asynchronous operation on and sleeps when there is nothing to do.
//
// Threads: any. One mutex guards everything that moves; completions run on the thread that made them happen.
#pragma once

#include "core/biased_mutex.hpp"
#include "group/operation.hpp"
#include "record/recorder.hpp"
#include "record/verdict.hpp"
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

/// The fingerprints of recent collectives, by sequence number, where no arena keeps them.
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
    const record::Recorder& recorder() const noexcept { return recorder_; }
    int size() const noexcept { return size_; }
    const std::string& name() const noexcept { return name_; }
    Determinism determinism() const noexcept { return determinism_; }
    const std::vector<int>& hosts() const noexcept { return layout_.host_of; }
    std::chrono::milliseconds timeout() const noexcept { return timeout_.load(); }
    void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

    /// Queues the operation; asynchronous ones are progressed in the background.
    void submit(const std::shared_ptr<Operation>& operation, bool asynchronous);
    /// Decides how a collective that is not issued yet will run, for all that are made from it: true, `small` is filled
    /// in; false: `schedule` is.
    bool choose_way(Operation& operation);
    /// Blocks until it is complete or the deadline has passed (throws Timeout then).
    void wait(Operation& operation, const Deadline& deadline);
    /// Issues it, waits for it, and throws what it failed with.
    void run(const std::shared_ptr<Operation>& operation);
    /// Runs a small collective at once, without an Operation, when nothing else is in flight. `timeout` zero: the
    /// group's. False, and nothing has happened, when it has to go the ordinary way.
    bool run_small(const char* name, const SmallCall& call, std::chrono::milliseconds timeout);
    /// Whether a collective of this shape is a small one. Depends only on what is equal on all ranks.
    bool is_small(Collective collective, std::uint64_t block_bytes) const noexcept;
    /// all_to_all: whether all that this rank sends fits into its slot. Ranks may differ in that.
    bool blocks_fit(const SmallCall& call) const noexcept;
    /// Sends a short message to a rank of this host at once; `payload` may be written again. False, and nothing has
    /// happened, when it has to go the ordinary way.
    bool send_now(int peer, std::uint64_t channel, std::uint64_t fingerprint, std::span<const std::byte> payload);
    /// Receives a short message of a rank of this host that is there or comes within a moment, when nothing else is in
    /// flight. False: it has to go the ordinary way.
    bool receive_now(transport::Transfer& receive);
    const algorithm::Layout& layout() const noexcept { return layout_; }
    /// The algorithm that is to serve a collective, whatever the tuning says; empty: none. Equal on all ranks; to be
    /// set while no collective is under way.
    const std::optional<std::string>& named(Collective collective) const noexcept {
        return named_[static_cast<std::size_t>(collective)];
    }
    void serve_with(Collective collective, std::optional<std::string> algorithm) {
        named_[static_cast<std::size_t>(collective)] = std::move(algorithm);
    }
    void abort(const std::string& reason);
    void leave();

    /// Whether ranks of this host share memory; equal on all of them.
    bool has_symmetric_memory() const noexcept;
    /// Memory with a part of `bytes` for each rank of this host; all of them call it.
    std::shared_ptr<transport::SymmetricSegment> make_symmetric(std::size_t bytes, const Deadline& deadline);
    /// From now on collectives know it. After all ranks of the host have made it.
    void add_symmetric(std::shared_ptr<transport::SymmetricSegment> segment);
    /// Whether collectives that are issued from now on may find their buffers in symmetric memory. Equal on all ranks.
    bool uses_symmetric_memory() const noexcept { return uses_symmetric_.load(std::memory_order_relaxed); }

 private:
    void take_tuning();
    void connect_shared_memory(const Deadline& deadline);
    void pass_on_host(const std::string& what, std::span<UniqueFd> fds, const Deadline& deadline,
                      const AbortFlag* abort);
    transport::Stream* stream_to(int peer);
    bool memory_readable() const;
    const transport::PeerMemory* memory_of(int peer);
    transport::SocketStream& socket_to(int peer);
    bool shares_memory_with(int peer) const noexcept {
        return ground_.arena != nullptr && ground_.local_of[static_cast<std::size_t>(peer)] >= 0;
    }
    void start(Operation& operation);
    void begin_schedule(Operation& operation);
    bool progress();
    bool progress_collective();
    bool progress_messages();
    void slow_checks();
    bool peer_has_left(int peer);
    void check_records(std::uint64_t sequence);
    void disagreement(int peer, std::uint64_t sequence);
    void fail(std::exception_ptr error);
    void on_verdict(const rendezvous::Verdict& verdict);
    void apply_verdict();
    void mismatch(int peer, std::uint64_t sequence, std::uint64_t theirs, std::uint64_t mine);
    void mismatch(int peer, std::uint64_t sequence, const std::string& sides);
    void disagreed(int peer, std::uint64_t sequence, const std::string& text);
    // What the recorder is told, and what it is asked for (recording.cpp).
    record::Ticket record_call(const Operation& operation);
    void record_failure(const std::exception_ptr& error);
    void note_waits(const Operation& operation, Instant now);
    void publish_tail(const std::string& reason);
    void fail_together(const record::Subject& subject, ErrorContext context);
    void fail_as_judged(const record::Judgement& judgement, ErrorContext context);
    ErrorContext context_of(const Operation& operation) const;
    std::string title_of(const Operation& operation) const;
    void time_out(Operation& operation);
    void sleep(std::chrono::milliseconds limit);
    void run_progress_thread();
    bool make_small(Operation& operation) const;
    void remember(std::uint64_t sequence, std::uint64_t fingerprint);
    std::uint64_t fingerprint_at(std::uint64_t sequence) const;  ///< 0 when it is not known (any more)
    SmallState begin_small();
    bool advance(const SmallCall& call, SmallState& state, std::uint64_t sequence);
    bool wait_briefly(const SmallCall& call, SmallState& state, std::uint64_t sequence);
    bool publish(const SmallCall& call, SmallState& state, std::uint64_t sequence);
    bool reusable(const SmallCall& call, SmallState& state, std::uint64_t sequence, std::size_t depth);
    void compare_at_checkpoint(const SmallCall& call, SmallState& state, std::uint64_t sequence);
    void record_small(const SmallCall& call, SmallState& state, std::uint64_t sequence);
    std::byte* small_blocks(int rank, std::uint64_t small_sequence, std::uint64_t head) const noexcept;
    void publish_blocks(const SmallCall& call, SmallState& state);
    void check_blocks(const SmallCall& call, SmallState& state, std::uint64_t sequence, int peer);
    void finish(const SmallCall& call, const SmallState& state);
    void take_blocks(const SmallCall& call, const SmallState& state);
    bool waits_for(const SmallCall& call, int peer) const noexcept;
    std::vector<int> waits_for(const Operation& operation) const;
    std::vector<int> missing(const SmallCall& call, const SmallState& state) const;
    transport::SmallSlot& small_slot(int rank, std::uint64_t small_sequence) const noexcept {
        return arena_->control(rank).small[small_sequence % transport::RankControl::small_slots];
    }
    std::byte* small_area(int rank, std::uint64_t small_sequence) const noexcept {
        return arena_->control(rank).small_area[small_sequence % transport::RankControl::small_areas];
    }
    /// Where a contribution of that many bytes lies.
    std::byte* small_payload(int rank, std::uint64_t small_sequence, std::size_t bytes) const noexcept {
        return bytes <= transport::SmallSlot::payload_bytes ? small_slot(rank, small_sequence).payload.data()
                                                            : small_area(rank, small_sequence);
    }
    void drive(Operation& operation, const Deadline& deadline);
    bool uses_shared_memory_only() const noexcept { return arena_ && arena_->layout().ranks == size_; }

    int rank_;
    int size_;
    std::string name_;
    std::atomic<std::chrono::milliseconds> timeout_;
    Determinism determinism_;
    algorithm::Layout layout_;
    std::array<std::optional<std::string>, collective_count + 1> named_;  // by collective
    record::Recorder recorder_;
    std::optional<record::Inquiry> inquiry_;
    std::atomic<bool> tail_published_{false};
    std::unique_ptr<rendezvous::Membership> membership_;
    std::shared_ptr<transport::Arena> arena_;
    std::vector<int> rank_of_local_;
    transport::Congestion congestion_;
    transport::SymmetricMemory symmetric_;
    std::atomic<bool> uses_symmetric_{false};
    std::uint64_t symmetric_segments_ = 0;  // made so far; equal on all ranks of the host
    std::vector<std::unique_ptr<transport::Stream>> streams_;
    std::vector<std::optional<transport::PeerMemory>> memories_;  // by rank, opened on first use
    std::vector<Instant> wanted_;                                 // by rank: when a connection was wanted first
    std::unique_ptr<transport::Mailbox> mailbox_;
    engine::Ground ground_;
    int spins_ = 0;     // before yielding
    int yields_ = 200;  // before sleeping

    BiasedMutex mutex_;
    std::deque<std::shared_ptr<Operation>> collectives_;
    std::list<std::shared_ptr<Operation>> messages_;
    std::uint64_t sequence_ = 0;
    std::uint64_t agreement_ = 0;  // a digest of the fingerprints of all collectives that have been started here
    std::uint64_t small_sequence_ = 0;
    std::vector<std::uint64_t> small_seen_;  // by rank: the latest small collective that it has begun, as far as known
    std::uint64_t small_checkpoint_ = 0;     // the collective that is compared when this rank runs out of slots
    History history_;
    std::exception_ptr failure_;
    bool executing_ = false;       // inside a schedule's step, which must not be destroyed under its feet
    std::exception_ptr deferred_;  // what failed meanwhile
    bool left_ = false;
    Instant next_slow_check_{}, last_slow_check_{};
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
    std::atomic<bool> asleep_{false};  // one of this rank's threads is in sleep()
    std::condition_variable_any work_arrived_;
    bool stopping_ = false;
    std::thread progress_thread_;
};

}  // namespace tutti::detail
