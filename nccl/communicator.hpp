// Communicator: one rank's part in what NCCL calls a communicator: a tutti group of its own world, and what NCCL keeps
// beside it: its state, its asynchronous error, operators that were made for it, memory that was registered.
//
// Operations of one communicator run one launch after the other, in the order of the calls (take_turn, await_turn,
// pass_turn), whatever streams they were given; that is NCCL's rule too. The communicators of a process are independent
// worlds: one fails alone.
//
// Threads: any. abort() also while others wait.
#pragma once

#include "failure.hpp"
#include "interface.h"
#include "one_sided.hpp"

#include <tutti/process_group.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/store.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tutti::nccl_library {

struct Fault;

/// What ncclConfig_t says that means something here; checked.
struct Settings {
    bool blocking = true;
    std::string name = "nccl";
};
/// Of `config`, which may be null: `otherwise`. Throws Failure (invalid argument) that names the member.
Settings settings_of(const ncclConfig_t* config, const Settings& otherwise = {});

/// An operator of ncclRedOpCreatePreMulSum.
struct ScaledSum {
    ncclDataType_t type = ncclFloat32;
    std::vector<std::byte> factor;  ///< its bytes; empty: they are read where `where` points, when the operation runs
    const void* where = nullptr;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
    enum class State { joining, ready, suspended, revoked, finalized, failed, aborted };

    Communicator(Settings settings, int device) : settings_(std::move(settings)), device_(device) {}

    const Settings& settings() const noexcept { return settings_; }
    int device() const noexcept { return device_; }
    int rank() const noexcept { return rank_; }
    int size() const noexcept { return size_; }
    void set_place(int rank, int size) noexcept {
        rank_ = rank;
        size_ = size;
    }
    /// "rank 1 of 4 in "name"".
    std::string describe() const;

    /// Joins the other ranks by their store; blocks until all have come. Throws after it has become failed.
    void join(const std::function<Store()>& find_store);
    /// What ncclCommGetAsyncError says.
    ncclResult_t state() const;
    /// The failure's sentence; "" where there is none.
    std::string sentence() const;
    bool is_revoked() const;
    /// Throws Failure where operations cannot be begun now.
    void check_ready() const;
    /// Throws Failure while it is suspended: it has no group then. For operations of graphs, which have no turn.
    void check_group() const;
    /// The first failure stays.
    void become_failed(const Failure& failure);

    const ProcessGroup& group() const noexcept { return group_; }
    const Store& store() const noexcept { return store_; }
    /// What each rank gives, by rank; all ranks call it. By the group, or where it was revoked by the store.
    std::vector<std::string> exchange(const std::string& mine);

    std::uint64_t take_turn();
    void await_turn(std::uint64_t turn);
    void pass_turn(std::uint64_t turn) noexcept;

    /// Of operations that begin: what TUTTI_NCCL_FAULTS says about this one.
    const Fault* next_fault();
    /// Until the communicator is aborted or revoked, or its group's time is over; throws.
    void hang(const char* what);

    /// Work that goes on after a call has returned ncclInProgress.
    void begin_background();
    void end_background() noexcept;

    /// The thread whose open group has operations of this communicator; throws Failure where it is another one.
    void enter_group(std::thread::id thread);
    void leave_group() noexcept;
    bool in_group() const;

    /// Ends what is under way; it can be split, shrunk and destroyed then.
    void revoke();
    /// Waits for all that was issued, then leaves the group.
    void finalize();
    /// The same on all ranks, with the signals that are on their way, so that resume() can make the group anew. What
    /// belongs to the communicator stays.
    void suspend();
    void resume();
    /// Bytes of the group's shared memory (of the last one, while it is suspended), and of what stays without it.
    struct MemoryUse {
        std::uint64_t releasable = 0;
        std::uint64_t lasting = 0;
        bool is_released = false;
    };
    MemoryUse memory_use() const;
    /// Ends what is under way; when it returns nothing touches a buffer any more.
    void abort() noexcept;

    ncclRedOp_t add_operator(ScaledSum op);
    void remove_operator(ncclRedOp_t op);
    ScaledSum operator_of(ncclRedOp_t op) const;

    /// Memory that was registered: nothing is to be done for it in host memory, but its handles are checked.
    void* add_registration(void* memory, std::size_t bytes);
    /// The same on all ranks, which tell each other their sizes; then it can be a target and a source of puts.
    void* add_symmetric_window(void* memory, std::size_t bytes);
    void remove_registration(const void* handle, const char* what);
    Registered registered(const void* handle, const char* what) const;
    OneSided& one_sided() const noexcept { return *one_sided_; }
    /// Others' puts and signals are taken from now on.
    void listen();

 private:
    void join_group();
    void await_issued(std::unique_lock<std::mutex>& lock);
    void* add_registration(Registered window);
    std::vector<std::string> exchange_by_group(const std::string& mine);
    std::vector<std::string> exchange_by_store(const std::string& mine);
    bool ended() const noexcept { return state_ == State::aborted || state_ == State::revoked; }

    const Settings settings_;
    const int device_;
    std::atomic<int> rank_{-1};
    std::atomic<int> size_{-1};

    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    State state_ = State::joining;
    std::optional<Failure> failure_;
    Store store_;
    ProcessGroup group_;
    int groups_ = 0;                  // that it has had: one more after each suspension
    bool listened_ = false;           // before it was suspended
    std::uint64_t shared_bytes_ = 0;  // of the group that a suspension has ended
    int background_ = 0;              // calls that have returned ncclInProgress
    std::uint64_t next_turn_ = 0;
    std::uint64_t turn_ = 0;          // the first that has not been passed
    std::set<std::uint64_t> passed_;  // later ones that have
    bool running_ = false;            // what has the turn, has begun
    std::uint64_t begun_ = 0;         // operations
    std::thread::id collector_;
    std::map<int, ScaledSum> operators_;
    const std::shared_ptr<OneSided> one_sided_ = std::make_shared<OneSided>();
};

/// Makes a handle for it. Handles are never used again for another one.
ncclComm_t make_handle(std::shared_ptr<Communicator> communicator);
/// Throws Failure (invalid argument) for null, for one that was destroyed or aborted, and for what is none.
std::shared_ptr<Communicator> communicator_of(ncclComm_t handle);
/// From now on the handle stands for nothing; `why`: "was destroyed".
void end_handle(ncclComm_t handle, const char* why);

}  // namespace tutti::nccl_library
