#include "operation/completion.hpp"

#include "core/assert.hpp"

#include <utility>

namespace tutti::detail {

void Completion::complete(std::exception_ptr error) noexcept {
    TUTTI_ASSERT(!done());
    error_ = std::move(error);
    done_.store(true, std::memory_order_release);
}

void Completion::enqueue(std::shared_ptr<DeviceEvent> event) {
    std::vector<std::function<void()>> callbacks;
    {
        const std::lock_guard lock(mutex_);
        if (issued()) return;
        event_ = std::move(event);
        TUTTI_ASSERT(!told_);
        enqueued_.store(true, std::memory_order_release);
        callbacks.swap(issue_callbacks_);
    }
    for (auto& callback : callbacks) callback();
}

void Completion::make_wait(Stream waiting) const {
    TUTTI_ASSERT(issued());
    if (!done() && enqueued_.load(std::memory_order_acquire) && event_) event_->make_wait(waiting);
}

void Completion::run_continuations() {
    std::vector<std::function<void()>> issued, callbacks;
    {
        const std::lock_guard lock(mutex_);
        told_ = true;
        TUTTI_ASSERT(done());
        issued.swap(issue_callbacks_);
        callbacks.swap(callbacks_);
        TUTTI_ASSERT(callbacks_.empty() && issue_callbacks_.empty());
    }
    for (auto& callback : issued) callback();
    for (auto& callback : callbacks) callback();
}

bool Completion::close_unless_awaited() {
    TUTTI_ASSERT(done());
    const std::lock_guard lock(mutex_);
    if (!callbacks_.empty() || !issue_callbacks_.empty()) return false;
    told_ = true;
    return true;
}

void Completion::complete_unseen() noexcept {
    TUTTI_ASSERT(!done() && callbacks_.empty() && issue_callbacks_.empty());
    told_ = true;
    done_.store(true, std::memory_order_release);
}

void Completion::on_completion(std::function<void()> callback) {
    TUTTI_ASSERT(callback != nullptr);
    {
        const std::lock_guard lock(mutex_);
        if (!told_) {
            callbacks_.push_back(std::move(callback));
            return;
        }
    }
    callback();
}

void Completion::on_issue(std::function<void()> callback) {
    TUTTI_ASSERT(callback != nullptr);
    {
        const std::lock_guard lock(mutex_);
        if (!told_ && !issued()) {
            issue_callbacks_.push_back(std::move(callback));
            return;
        }
    }
    callback();
}

void Completion::reopen() noexcept {
    TUTTI_ASSERT(done());
    {
        const std::lock_guard lock(mutex_);  // behind its continuations, whichever thread called them
        TUTTI_ASSERT(callbacks_.empty() && issue_callbacks_.empty());
        told_ = false;
    }
    done_.store(false, std::memory_order_relaxed);
    enqueued_.store(false, std::memory_order_relaxed);
    event_.reset();
    error_ = nullptr;
}

}  // namespace tutti::detail
