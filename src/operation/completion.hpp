// Completion: the state of an asynchronous operation (pending, issued to a device, complete), its error, and callbacks.
//
// Threads: any. Callbacks run on the thread that completes, or on the caller's if the operation is already complete.
#pragma once

#include <tutti/backend.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti::detail {

class Completion {
 public:
    bool done() const noexcept { return done_.load(std::memory_order_acquire); }
    /// Complete, or enqueued in a stream of its device (BackendCompletion::enqueued).
    bool issued() const noexcept { return done() || enqueued_.load(std::memory_order_acquire); }
    /// Records that the operation is enqueued on its device, where `event` marks its end. No effect if it is issued
    /// already.
    void enqueue(std::shared_ptr<DeviceEvent> event);
    /// Makes work that is added to `waiting` from now on wait for this operation, which must be issued.
    void make_wait(Stream waiting) const;
    std::exception_ptr error() const noexcept { return done() ? error_ : nullptr; }
    /// Completes the operation, with an error or (null) success. Call it exactly once, followed by run_continuations()
    /// or close_unless_awaited().
    void complete(std::exception_ptr error) noexcept;
    /// Calls the callbacks; callbacks added later are called at once.
    void run_continuations();
    /// If there are no callbacks: callbacks added later are called at once. False if there are some.
    bool close_unless_awaited();
    /// complete() and close_unless_awaited(), for an operation to which no other thread has access yet.
    void complete_unseen() noexcept;
    /// Calls `callback` on completion (at once if the operation is complete).
    void on_completion(std::function<void()> callback);
    /// Calls `callback` when the operation is issued (at once if it is).
    void on_issue(std::function<void()> callback);

 protected:
    /// Makes a complete operation pending again, so that it can run another time. No other thread may have access to
    /// it.
    void reopen() noexcept;

 private:
    std::atomic<bool> done_{false};
    std::atomic<bool> enqueued_{false};
    std::shared_ptr<DeviceEvent> event_;  // valid once enqueued_ is set
    std::exception_ptr error_;
    std::mutex mutex_;
    bool told_ = false;  // callbacks added from now on are called at once
    std::vector<std::function<void()>> callbacks_, issue_callbacks_;
};

}  // namespace tutti::detail
