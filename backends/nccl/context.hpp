// Context: what the parts of one group's backend share.
//
// Threads: any.
#pragma once

#include "nccl/communicator.hpp"
#include "nccl/driver.hpp"
#include "nccl/library.hpp"
#include "nccl/streams.hpp"
#include "nccl/watcher.hpp"

#include <tutti/backend.hpp>
#include <tutti/error.hpp>
#include <tutti/nccl.hpp>
#include <tutti/process_group.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::nccl {

/// One device of this process, as the group uses it.
struct Place {
    Device device{};
    std::shared_ptr<const Driver> driver;  ///< host memory: host_driver()
    std::shared_ptr<Events> events;
    /// Operations are carried out before the library's call returns (host memory): calls that wait for other ranks
    /// need a thread that may block.
    bool calls_block = false;
};

/// "nccl: rank 1 of group "dp" (4 ranks)"
std::string title_of(const std::string& backend, const DistributedBackendOptions& options);

class Context : public std::enable_shared_from_this<Context> {
 public:
    Context(std::shared_ptr<const Library> library, const DistributedBackendOptions& options, NcclOptions nccl_options);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    int rank() const noexcept { return rank_; }
    int size() const noexcept { return size_; }
    std::chrono::milliseconds timeout() const noexcept { return timeout_; }
    const std::string& title() const noexcept { return title_; }  ///< "nccl: rank 1 of group \"dp\" (4 ranks)"
    const std::shared_ptr<const Library>& library() const noexcept { return library_; }
    const NcclOptions& nccl_options() const noexcept { return nccl_options_; }
    Store& store() noexcept { return store_; }  ///< of this group's backend

    /// A native group of the same ranks. Its collectives are ByHost's alone, its messages Messages'.
    const ProcessGroup& companion() const noexcept { return companion_; }

    /// Of the buffers' device. Throws DistBackendError where this process cannot serve it, or where the group has used
    /// another device of that kind.
    const Place& place(Device device);
    /// Its stream is being captured into a graph.
    bool is_captured(const BackendRequest& request);
    /// What is said of an operation that a graph cannot hold; `why`: "barrier holds up the host".
    DistBackendError cannot_be_captured(const BackendRequest& request, const std::string& why) const;

    /// "all_reduce #41", and when its time is over.
    static std::string what(const BackendRequest& request);
    std::chrono::milliseconds timeout_of(const BackendRequest& request) const;
    Clock::time_point deadline_of(const BackendRequest& request) const { return Clock::now() + timeout_of(request); }

    Watcher& watcher() noexcept { return *watcher_; }

    /// The first failure, or an abort: everything that is under way ends with it, and everything later. Any thread.
    /// Runs what when_over() was given, once; communicators that were made here are stopped.
    void fail(std::exception_ptr error) noexcept;
    /// fail(), unless another does within a second: what a library or the companion says when a peer has died is a
    /// symptom, and tutti, which knows the cause, ends the group a moment later. Returns at once.
    void suspect(std::exception_ptr error) noexcept;
    /// From now on fail() does not tell the other ranks: this one leaves, and what it still hears is of theirs.
    void keep_quiet() noexcept { is_quiet_ = true; }
    /// Takes leave of the other ranks, as everything has been carried out: frees the communicators, at most until then.
    void leave(Clock::time_point until) noexcept;
    /// What it failed with; null: it goes on.
    std::exception_ptr error() const noexcept;
    bool is_over() const noexcept { return over_; }
    void throw_if_over() const;
    /// `end` must not throw and must return soon; it is called at once if the context is over already.
    void when_over(std::function<void(std::exception_ptr)> end);

    /// A communicator of some ranks of this group, which fail() aborts. Blocks, see there: not in a thread that issues.
    std::shared_ptr<Communicator> make_communicator(std::span<const UniqueId> ids, int rank, int size,
                                                    const Place& place);
    /// For one that was made elsewhere: fail() aborts it, too. Aborts it and throws if the context is over.
    void adopt(const std::shared_ptr<Communicator>& communicator);
    CommunicatorOptions communicator_options(int rank, int size) const;
    /// Waits until what fail() does has been done, at most until then: whether it is so. Does not wait in the thread
    /// that does it, which may be dropping the group's last handle.
    bool wait_for_end(Clock::time_point until) const;
    /// Set by fail().
    const std::atomic<bool>* over_flag() const noexcept { return &over_; }

 private:
    std::vector<std::shared_ptr<Communicator>> communicators() const;

    struct State;
    const std::unique_ptr<State> state_;
    const std::shared_ptr<const Library> library_;
    const NcclOptions nccl_options_;
    const int rank_, size_;
    const std::chrono::milliseconds timeout_;
    const std::string title_;
    Store store_;
    ProcessGroup companion_;
    std::unique_ptr<Watcher> watcher_;
    std::atomic<const Place*> last_place_{nullptr};  // that was asked for
    std::atomic<bool> over_{false}, is_quiet_{false};
};

}  // namespace tutti::nccl
