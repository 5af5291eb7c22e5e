#include "operation/completion.hpp"

#include <utility>

namespace tutti::detail {

void Completion::complete(std::exception_ptr error) noexcept {
    error_ = std::move(error);
    done_.store(true, std::memory_order_release);
}

void Completion::enqueue(std::shared_ptr<DeviceEvent> event) {
    std::vector<std::function<void()>> callbacks;
    {
        const std::lock_guard lock(mutex_);
        if (issued()) return;
        event_ = std::move(event);
        enqueued_.store(true, std::memory_order_release);
        callbacks.swap(issue_callbacks_);
    }
    for (auto& callback : callbacks) callback();
}

void Completion::make_wait(Stream waiting) const {
    if (!done() && enqueued_.load(std::memory_order_acquire) && event_) event_->make_wait(waiting);
}

void Completion::run_continuations() {
    std::vector<std::function<void()>> issued, callbacks;
    {
        const std::lock_guard lock(mutex_);
        told_ = true;
        issued.swap(issue_callbacks_);
        callbacks.swap(callbacks_);
    }
    for (auto& callback : issued) callback();
    for (auto& callback : callbacks) callback();
}

bool Completion::close_unless_awaited() {
    const std::lock_guard lock(mutex_);
    if (!callbacks_.empty() || !issue_callbacks_.empty()) return false;
    told_ = true;
    return true;
}

void Completion::complete_unseen() noexcept {
    told_ = true;
    done_.store(true, std::memory_order_release);
}

void Completion::on_completion(std::function<void()> callback) {
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
    {
        const std::lock_guard lock(mutex_);  // behind its continuations, whichever thread called them
        told_ = false;
    }
    done_.store(false, std::memory_order_relaxed);
    enqueued_.store(false, std::memory_order_relaxed);
    event_.reset();
    error_ = nullptr;
}

}  // namespace tutti::detail
