// OneSided: a communicator's windows and signals: what ncclPutSignal and ncclSignal send, and ncclWaitSignal waits for.
//
// A window is memory of the program, so a put is two messages: a header, and the data, which the target's library
// receives straight into the window. One receive of a header is always posted, and its continuation, on a thread of
// tutti, receives the data, counts the signal and posts the next one: the target need not call anything. Puts of one
// rank are taken in their order, so whoever sees a signal has the data of all puts before it.
//
// Threads: any; the functions that begin and end listening: one at a time.
#pragma once

#include "failure.hpp"

#include <tutti/process_group.hpp>
#include <tutti/work.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tutti::nccl_library {

/// Memory that a communicator has registered.
struct Registered {
    void* memory = nullptr;
    std::size_t bytes = 0;
    std::uint64_t number = 0;               ///< of a symmetric window: equal on all ranks
    std::vector<std::uint64_t> rank_bytes;  ///< of a symmetric window: every rank's size, by rank; else empty
    bool is_symmetric() const noexcept { return !rank_bytes.empty(); }
};

class OneSided : public std::enable_shared_from_this<OneSided> {
 public:
    /// Posts the first receive; nothing where it has been posted. `on_wrong_put`: one has come for which there is no
    /// place here.
    void listen(const ProcessGroup& group, std::function<void(const Failure&)> on_wrong_put);
    bool listens() const;
    /// The group is about to end: failures of receives are no failures from now on.
    void stop() noexcept;
    /// Ends all waits.
    void fail(const Failure& failure) noexcept;

    /// The next number of a symmetric window.
    std::uint64_t next_window() noexcept;
    void add(const void* handle, Registered window);
    /// False: there is none of this name.
    bool remove(const void* handle);
    std::optional<Registered> find(const void* handle) const;
    /// The symmetric window that has this memory.
    std::optional<Registered> find_symmetric(const void* memory, std::size_t bytes) const;
    /// What the tables take in memory.
    std::size_t table_bytes() const;

    /// A put that is on its way. Precondition: listens() on the target, or will.
    struct Sending {
        std::shared_ptr<const void> header;
        std::vector<Work> works;
        void wait();
    };
    /// `bytes` zero: a signal alone.
    Sending put(const ProcessGroup& group, int peer, std::uint64_t window, std::uint64_t offset, const void* data,
                std::size_t bytes);
    /// For each rank: how many signals this rank has put to it.
    std::vector<std::uint64_t> sent(int ranks) const;

    struct Wanted {
        int peer = -1;
        std::uint64_t count = 0;
    };
    /// Waits for further signals, after those that waits before it have waited for. Throws Failure (remote error) that
    /// names what is missing after `limit`.
    void await(const std::vector<Wanted>& wanted, std::chrono::milliseconds limit);
    /// Waits until as many signals of each rank have come since the beginning, whether or not they were waited for.
    void await_all(const std::vector<std::uint64_t>& counts, std::chrono::milliseconds limit);

 private:
    struct Header {
        std::uint64_t window = 0;
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;
    };
    void receive_next();
    bool take(Work& work, const Header& header) noexcept;
    void end(const std::exception_ptr& error) noexcept;
    void* place_of(const Header& header, int source) const;
    void wait_until(const std::map<int, std::uint64_t>& counts, std::chrono::milliseconds limit);

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    ProcessGroup group_;
    std::function<void(const Failure&)> on_wrong_put_;
    bool listens_ = false;
    std::optional<Failure> failure_;
    std::uint64_t windows_ = 0;
    std::map<const void*, Registered> registered_;
    std::map<int, std::uint64_t> sent_, arrived_, awaited_;  // signals, by rank
};

}  // namespace tutti::nccl_library
