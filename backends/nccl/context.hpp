// Context: the state that the parts of one group's backend share.
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
    /// The library carries out operations before its call returns (host memory): calls that wait for other ranks need a
    /// thread that may block.
    bool calls_block = false;
};

/// How long a library's error waits for its cause: after the death of a peer the libraries' errors are symptoms.
constexpr std::chrono::milliseconds time_for_the_cause{1000};

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

    /// A native group of the same ranks. Only HostFallback uses its collectives, only Messages its messages.
    const ProcessGroup& host_group() const noexcept { return host_group_; }

    /// The place of the buffers' device. Throws DistBackendError if this process cannot serve it, or if the group has
    /// used another device of that kind.
    const Place& place(Device device);
    /// Whether a graph is capturing the request's stream.
    bool is_captured(const BackendRequest& request);
    /// The error for an operation that a graph cannot hold; `why`: "barrier holds up the host".
    DistBackendError cannot_be_captured(const BackendRequest& request, const std::string& why) const;

    /// "all_reduce #41"; below, the time limits of an operation.
    static std::string what(const BackendRequest& request);
    std::chrono::milliseconds timeout_of(const BackendRequest& request) const;
    Clock::time_point deadline_of(const BackendRequest& request) const { return Clock::now() + timeout_of(request); }

    Watcher& watcher() noexcept { return *watcher_; }

    /// The first failure, or an abort: all operations under way end with it, and all later ones. Any thread. Runs the
    /// functions that when_over() got, once; stops the communicators that were made here.
    void fail(std::exception_ptr error) noexcept;
    /// fail(), unless another call of it comes within a second: the error of a library or the host group after a peer's
    /// death is a symptom, and tutti, which knows the cause, ends the group a moment later. Returns at once.
    void suspect(std::exception_ptr error) noexcept;
    /// From now on fail() does not tell the other ranks: this one leaves, and failures that it still hears of are
    /// theirs.
    void keep_quiet() noexcept { is_quiet_ = true; }
    /// Leaves the other ranks when all operations are done: frees the communicators, at most until `until`.
    void leave(Clock::time_point until) noexcept;
    /// The failure that ended it; null: it goes on.
    std::exception_ptr error() const noexcept;
    bool is_over() const noexcept { return over_; }
    void throw_if_over() const;
    /// `end` must not throw and must return soon; it is called at once if the context is over already.
    void when_over(std::function<void(std::exception_ptr)> end);

    /// A communicator of some ranks of this group, which fail() aborts. Blocks, see there, so not in an issuing thread.
    std::shared_ptr<Communicator> make_communicator(std::span<const UniqueId> ids, int rank, int size,
                                                    const Place& place);
    /// Takes a communicator that was made elsewhere: fail() aborts it, too. Aborts it and throws if the context is
    /// over.
    void adopt(const std::shared_ptr<Communicator>& communicator);
    CommunicatorOptions communicator_options(int rank, int size) const;
    /// Waits until fail() has finished, at most until `until`; returns whether that is so. Does not wait in the thread
    /// that runs fail(), which may be dropping the group's last handle.
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
    ProcessGroup host_group_;
    std::unique_ptr<Watcher> watcher_;
    std::atomic<const Place*> last_place_{nullptr};  // the last result of place()
    std::atomic<bool> over_{false}, is_quiet_{false};
};

}  // namespace tutti::nccl
