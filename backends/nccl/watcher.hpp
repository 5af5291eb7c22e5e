// Watcher: follows operations in a stream to their end. It completes them, with success when the device has reached
// their event; with a failure when their communicator reports one or their time is over, and then fails every operation
// that the group still has.
//
// Threads: any; it has one of its own, which sleeps while nothing is under way. It falls asleep a moment after the last
// operation's end, so that calls that follow each other closely need not wake it.
#pragma once

#include "nccl/communicator.hpp"
#include "nccl/streams.hpp"

#include <tutti/backend.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace tutti::nccl {

using Clock = std::chrono::steady_clock;

/// One operation in a stream.
struct Watched {
    std::optional<BackendCompletion> completion;  ///< none: the caller knows already
    std::shared_ptr<Event> end;
    std::shared_ptr<Communicator> communicator;  ///< null: copies alone
    /// Says "all_reduce #41", for messages, until the end.
    std::function<std::string()> what;
    Clock::time_point deadline{};
    std::chrono::milliseconds timeout{0};
    int source = -1;
    std::shared_ptr<void> kept{};  ///< until the end
};

class Watcher {
    class Core;

 public:
    /// `title`: for messages. The watcher's thread calls `fail` once, with the first failure; that ends everything,
    /// this watcher too (Context::fail).
    Watcher(std::string title, std::function<void(std::exception_ptr)> fail);
    ~Watcher();
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;

    /// The watcher calls `probe` now and then while something is under way: it returns a failure that other ranks have
    /// reported; null: none.
    void set_probe(std::function<std::exception_ptr()> probe);
    /// While it exists, a thread waits for other ranks in a call that does not hear of their failures, so the watcher
    /// probes.
    class Waiting {
     public:
        explicit Waiting(Watcher& watcher);
        ~Waiting();
        Waiting(const Waiting&) = delete;
        Waiting& operator=(const Waiting&) = delete;

     private:
        const std::shared_ptr<Core> core_;
    };
    /// Takes over the operation's completion, and calls its enqueued() if `is_told`: from then on only the device's
    /// work remains. After end(): fails it.
    enum class Told { yes, no };
    void watch(Watched operation, Told is_told = Told::yes);
    /// Waits until nothing is under way, at most until `until`; returns whether that is so.
    bool drain(Clock::time_point until);
    /// All watched operations, now and later, fail with `error`.
    void end(std::exception_ptr error) noexcept;

 private:
    const std::shared_ptr<Core> core_;  // outlives the watcher while its thread is in a call of others
};

}  // namespace tutti::nccl
