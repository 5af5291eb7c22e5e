// Future: a value that is set later, with continuations; coroutines can await it.
//
// Thread-safe; copies share the state. Continuations and waiting coroutines run on the thread that completes the
// future, or at once on the caller's thread if the future is already complete. The futures of a Work instead complete
// on a thread of tutti, one for each group, which holds no lock: continuations there may start further operations and
// wait for them. Continuations of one group run one after the other.
// Follows torch.futures.Future, collect_all and wait_all.
#pragma once

#include <tutti/error.hpp>

#include <atomic>
#include <condition_variable>
#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

class Work;
template <class T>
class Future;

namespace detail {
struct Nothing {};  // the value of a Future<void>
template <class T>
using Held = std::conditional_t<std::is_void_v<T>, Nothing, T>;
template <class T>
class FuturePromise;
template <class T>
class FutureAwaiter;
}  // namespace detail

/// A value of type T, or an exception, set once. T may be void, or a type that can only be moved.
///
/// A function that returns a Future may be a coroutine. It runs on its caller's thread until it first waits:
///
///     tutti::Future<int> step(std::vector<int>& x) {
///         tutti::Work sum = tutti::async::all_reduce(x);
///         co_await sum;
///         co_return x[0];
///     }
///
/// GCC before 13 destroys an object in braces inside an awaited expression twice: make it a variable first.
template <class T>
class Future {
 public:
    using value_type = T;
    using promise_type = detail::FuturePromise<T>;
    /// The result of wait() and value(): void, or a reference to the value, which lives as long as a copy of the
    /// future.
    using Reference = std::conditional_t<std::is_void_v<T>, void, const detail::Held<T>&>;

    Future() : state_(std::make_shared<State>()) {}

    /// Blocks until done; rethrows a failure. Do not call it from a continuation that has to end before the future can
    /// complete.
    Reference wait() const {
        std::unique_lock lock(state_->mutex);
        state_->done_changed.wait(lock, [&] { return state_->done(); });
        return state_->get();
    }
    /// The value of a future that is done; rethrows a failure. Throws InvalidArgument if the future is not done.
    Reference value() const {
        const std::lock_guard lock(state_->mutex);
        if (!state_->done()) throw InvalidArgument("Future.value: the future is not done; call wait() first");
        return state_->get();
    }
    bool done() const {
        const std::lock_guard lock(state_->mutex);
        return state_->done();
    }
    /// Runs `callback(*this)` on completion, failed or not; the returned future holds the callback's result or
    /// exception. If the callback calls value() on a failed future and does not catch, the returned future fails with
    /// the same exception.
    template <class F>
    auto then(F callback) const -> Future<std::decay_t<std::invoke_result_t<F&, const Future&>>> {
        using R = std::decay_t<std::invoke_result_t<F&, const Future&>>;
        Future<R> next;
        on_completion([next, callback = std::make_shared<F>(std::move(callback))](const Future& self) {
            try {
                if constexpr (std::is_void_v<R>) {
                    (*callback)(self);
                    next.set_value();
                } else {
                    next.set_value((*callback)(self));
                }
            } catch (...) {
                next.set_exception(std::current_exception());
            }
        });
        return next;
    }
    /// As then(), for a callback whose result and exceptions are of no interest.
    template <class F>
    void add_done_callback(F callback) const {
        (void)then(std::move(callback));
    }

    /// co_await gives the value (a copy, where it can be copied) or throws the failure. It keeps the future alive. A
    /// coroutine that is destroyed while it waits is not resumed.
    detail::FutureAwaiter<T> operator co_await() const { return detail::FutureAwaiter<T>(*this); }

    /// Completes the future; later calls have no effect.
    void set_value(detail::Held<T> value) const requires(!std::is_void_v<T>) {
        run(resolve(std::move(value), nullptr));
    }
    void set_value() const requires std::is_void_v<T> { run(resolve(detail::Nothing{}, nullptr)); }
    /// Completes the future with a failure; later calls have no effect. Throws InvalidArgument for null.
    void set_exception(std::exception_ptr error) const {
        if (!error) throw InvalidArgument("Future.set_exception: expected an exception, got null");
        run(resolve(std::nullopt, std::move(error)));
    }

 private:
    friend class Work;
    friend class detail::FutureAwaiter<T>;
    using Continuation = std::function<void(const Future&)>;

    struct State {
        std::mutex mutex;
        std::condition_variable done_changed;
        std::optional<detail::Held<T>> value;
        std::exception_ptr error;
        std::vector<Continuation> continuations;
        bool done() const { return value.has_value() || error != nullptr; }
        Reference get() const {
            if (error) std::rethrow_exception(error);
            if constexpr (!std::is_void_v<T>) return *value;
        }
    };

    /// Completes the future and wakes the waiting threads; the caller runs the returned continuations.
    std::vector<Continuation> resolve(std::optional<detail::Held<T>> value, std::exception_ptr error) const {
        const std::lock_guard lock(state_->mutex);
        if (state_->done()) return {};
        state_->value = std::move(value);
        state_->error = std::move(error);
        state_->done_changed.notify_all();
        return std::exchange(state_->continuations, {});
    }
    /// Only a coroutine whose promise lets exceptions escape can throw here; that calls std::terminate(), as in a
    /// thread.
    void run(const std::vector<Continuation>& continuations) const noexcept {
        for (const auto& continuation : continuations) continuation(*this);
    }
    /// False: the future is done already, and the continuation will not run.
    bool add(Continuation& continuation) const {
        const std::lock_guard lock(state_->mutex);
        if (state_->done()) return false;
        state_->continuations.push_back(std::move(continuation));
        return true;
    }
    void on_completion(Continuation continuation) const {
        if (!add(continuation)) continuation(*this);
    }

    std::shared_ptr<State> state_;
};

/// Returns a future that completes when all `futures` have, whether they failed or not. Its value is the list of
/// `futures`; it never fails itself.
template <class T>
Future<std::vector<Future<T>>> collect_all(std::vector<Future<T>> futures) {
    struct Collection {
        std::vector<Future<T>> futures;
        Future<std::vector<Future<T>>> all;
        std::atomic<std::size_t> missing;
    };
    const std::size_t count = futures.size();
    const std::shared_ptr<Collection> collection(new Collection{std::move(futures), {}, count + 1});
    const auto one_more = [collection] {
        if (collection->missing.fetch_sub(1) == 1) collection->all.set_value(std::move(collection->futures));
    };
    // By index, since the last future to complete moves the list away.
    for (std::size_t i = 0; i < count; ++i) {
        const Future<T> future = collection->futures[i];
        future.add_done_callback([one_more](const Future<T>&) { one_more(); });
    }
    one_more();
    return collection->all;
}

/// Waits for all; returns their values in order (nothing for Future<void>). If some failed, throws the first failure in
/// list order, but only after all have completed and their buffers are free.
template <class T>
auto wait_all(const std::vector<Future<T>>& futures) {
    std::exception_ptr first;
    for (const auto& future : futures) {
        try {
            (void)future.wait();
        } catch (...) {
            if (!first) first = std::current_exception();
        }
    }
    if (first) std::rethrow_exception(first);
    if constexpr (!std::is_void_v<T>) {
        std::vector<T> values;
        values.reserve(futures.size());
        for (const auto& future : futures) values.push_back(future.value());
        return values;
    }
}

namespace detail {

template <class T>
class FutureAwaiter {
 public:
    /// A value that can only be moved stays in the future.
    using Result = std::conditional_t<std::is_void_v<T> || !std::is_copy_constructible_v<Held<T>>,
                                      typename Future<T>::Reference, T>;

    explicit FutureAwaiter(Future<T> future) : future_(std::move(future)) {}
    FutureAwaiter(const FutureAwaiter&) = delete;
    FutureAwaiter& operator=(const FutureAwaiter&) = delete;
    ~FutureAwaiter() {
        if (waits_) waits_->store(false);
    }

    bool await_ready() const { return future_.done(); }
    bool await_suspend(std::coroutine_handle<> coroutine) {
        const auto waits = std::make_shared<std::atomic<bool>>(true);
        typename Future<T>::Continuation resume = [waits, coroutine](const Future<T>&) {
            if (waits->exchange(false)) coroutine.resume();
        };
        waits_ = waits;
        // Another thread may resume the coroutine, which destroys this awaiter, before add() returns.
        const Future<T> future = future_;
        return future.add(resume);
    }
    Result await_resume() const { return future_.value(); }

 private:
    Future<T> future_;
    std::shared_ptr<std::atomic<bool>> waits_;
};

/// The promise type of coroutines that return a Future. The future completes after the coroutine's variables are
/// destroyed, and before its arguments are.
template <class T>
class FuturePromiseBase {
 public:
    Future<T> get_return_object() const { return future_; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() noexcept {
        if (error_) {
            future_.set_exception(std::move(error_));
        } else if constexpr (std::is_void_v<T>) {
            future_.set_value();
        } else {
            future_.set_value(std::move(*value_));
        }
        return {};
    }
    void unhandled_exception() noexcept { error_ = std::current_exception(); }

 protected:
    std::optional<Held<T>> value_;

 private:
    Future<T> future_;
    std::exception_ptr error_;
};

template <class T>
class FuturePromise : public FuturePromiseBase<T> {
 public:
    template <class U = T>
    void return_value(U&& value) {
        this->value_.emplace(std::forward<U>(value));
    }
};
template <>
class FuturePromise<void> : public FuturePromiseBase<void> {
 public:
    void return_void() const noexcept {}
};

}  // namespace detail

}  // namespace tutti
