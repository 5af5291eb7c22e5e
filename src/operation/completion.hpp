// Completion: whether something that was begun is over, its error, and the callbacks of those who want to know.
//
// Threads: any. Callbacks run in the thread that completes, or in the one that asks where that is over already.
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
    /// Done, or in a stream of its device (BackendCompletion::enqueued).
    bool issued() const noexcept { return done() || enqueued_.load(std::memory_order_acquire); }
    /// Once, before it is complete.
    void enqueue(std::shared_ptr<DeviceEvent> event);
    /// Work that enters `waiting` from now on waits for this, which is issued.
    void make_wait(Stream waiting) const;
    std::exception_ptr error() const noexcept { return done() ? error_ : nullptr; }
    /// Exactly once; run_continuations() follows, or close_unless_awaited().
    void complete(std::exception_ptr error) noexcept;
    /// Calls the callbacks; later ones are called at once.
    void run_continuations();
    /// Where there are no callbacks: later ones are called at once. False where there are some.
    bool close_unless_awaited();
    /// Both, for one that no other thread knows yet.
    void complete_unseen() noexcept;
    /// Calls back on completion (at once if that is over).
    void on_completion(std::function<void()> callback);
    /// The same when it is issued.
    void on_issue(std::function<void()> callback);

 protected:
    /// Of one that is over, and that nobody else refers to: it can be completed another time.
    void reopen() noexcept;

 private:
    std::atomic<bool> done_{false};
    std::atomic<bool> enqueued_{false};
    std::shared_ptr<DeviceEvent> event_;  // as soon as enqueued_ is set
    std::exception_ptr error_;
    std::mutex mutex_;
    bool told_ = false;  // callbacks are called at once
    std::vector<std::function<void()>> callbacks_, issue_callbacks_;
};

}  // namespace tutti::detail
