// Future: a value that will be there later, with continuations.
//
// Thread-safe; copies share the state. A continuation runs on the thread that completes the future, or at once on
// the caller's when it is already complete; it must not block. Exceptions travel through chains.
// Follows torch.futures.Future.
#pragma once

#include <tutti/error.hpp>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

template <class T>
class Future {
 public:
    Future() : state_(std::make_shared<State>()) {}

    /// Blocks until done; rethrows a failure.
    const T& wait() const {
        std::unique_lock lock(state_->mutex);
        state_->done_changed.wait(lock, [&] { return state_->done(); });
        return state_->get();
    }
    /// The value of a future that is done; InvalidArgument before.
    const T& value() const {
        const std::lock_guard lock(state_->mutex);
        if (!state_->done()) throw InvalidArgument("Future.value: the future is not done; call wait() first");
        return state_->get();
    }
    bool done() const {
        const std::lock_guard lock(state_->mutex);
        return state_->done();
    }
    /// Runs `callback(*this)` on completion, failed or not; the returned future holds what it returns or throws.
    template <class F>
    auto then(F callback) const -> Future<std::invoke_result_t<F, const Future&>> {
        using R = std::invoke_result_t<F, const Future&>;
        Future<R> next;
        add_callback([self = *this, next, callback = std::move(callback)]() mutable {
            try {
                next.set_value(callback(self));
            } catch (...) {
                next.set_exception(std::current_exception());
            }
        });
        return next;
    }

    /// Completes the future; later calls have no effect.
    void set_value(T value) const {
        complete([&](State& state) { state.value.emplace(std::move(value)); });
    }
    void set_exception(std::exception_ptr error) const {
        complete([&](State& state) { state.error = std::move(error); });
    }

 private:
    struct State {
        std::mutex mutex;
        std::condition_variable done_changed;
        std::optional<T> value;
        std::exception_ptr error;
        std::vector<std::function<void()>> callbacks;
        bool done() const { return value.has_value() || error != nullptr; }
        const T& get() const {
            if (error) std::rethrow_exception(error);
            return *value;
        }
    };

    template <class F>
    void complete(F store) const {
        std::vector<std::function<void()>> callbacks;
        {
            const std::lock_guard lock(state_->mutex);
            if (state_->done()) return;
            store(*state_);
            callbacks.swap(state_->callbacks);
            state_->done_changed.notify_all();
        }
        for (auto& callback : callbacks) callback();
    }
    void add_callback(std::function<void()> callback) const {
        {
            const std::lock_guard lock(state_->mutex);
            if (!state_->done()) {
                state_->callbacks.push_back(std::move(callback));
                return;
            }
        }
        callback();
    }

    std::shared_ptr<State> state_;
};

}  // namespace tutti
