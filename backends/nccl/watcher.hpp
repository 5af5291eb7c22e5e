// Watcher: sees operations that are in a stream to their end. It completes them, with success when the device has
// reached their event; with a failure when their communicator reports one or their time is over, and then every
// operation that the group still has.
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
    /// `title`: for messages. `fail`: called once, by the watcher's thread, with the first failure; ends everything,
    /// this watcher too (Context::fail).
    Watcher(std::string title, std::function<void(std::exception_ptr)> fail);
    ~Watcher();
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;

    /// Asked now and then while something is under way: what other ranks have told this one of a failure; null:
    /// nothing.
    void set_probe(std::function<std::exception_ptr()> probe);
    /// While it exists a thread waits for other ranks in a way that hears nothing of their failures: so the watcher
    /// asks.
    class Waiting {
     public:
        explicit Waiting(Watcher& watcher);
        ~Waiting();
        Waiting(const Waiting&) = delete;
        Waiting& operator=(const Waiting&) = delete;

     private:
        const std::shared_ptr<Core> core_;
    };
    /// Takes over its completion, and calls enqueued() of it where `is_told`: from then on nothing but the device is to
    /// be waited for. After end(): fails it.
    enum class Told { yes, no };
    void watch(Watched operation, Told is_told = Told::yes);
    /// Waits until nothing is under way, at most until then: whether it is so.
    bool drain(Clock::time_point until);
    /// Everything that is watched, now and later, fails with it.
    void end(std::exception_ptr error) noexcept;

 private:
    const std::shared_ptr<Core> core_;  // outlives the watcher while its thread is in a call of others
};

}  // namespace tutti::nccl
