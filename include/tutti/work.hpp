// Work: the handle of an asynchronous operation.
#pragma once

#include <tutti/export.hpp>
#include <tutti/future.hpp>
#include <tutti/tensor.hpp>

#include <any>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

namespace tutti {

/// How an operation ended; the value of Work::get_future_result().
enum class WorkResult : int { success = 0, timeout = 1, comm_error = 2, unknown = 100 };

namespace detail {
class Operation;
}

/// Handle of an asynchronous operation. Copies refer to the same operation; all methods are thread-safe. The buffers of
/// the operation must stay alive and untouched until it is complete; dropping the handle does not cancel it.
/// A default-constructed Work is empty; so is the Work that a rank outside the group gets.
class TUTTI_API Work {
 public:
    Work() = default;
    explicit Work(std::shared_ptr<detail::Operation> operation) : operation_(std::move(operation)) {}

    explicit operator bool() const noexcept { return operation_ != nullptr; }

    /// Whether the operation is complete, with success or an error.
    bool is_completed() const;
    /// Blocks until the operation is complete. `timeout` zero: at most until the operation's own deadline. Otherwise
    /// throws Timeout when `timeout` has passed; the operation then continues. Rethrows the operation's error. Returns
    /// true.
    bool wait(std::chrono::milliseconds timeout = std::chrono::milliseconds{0});
    /// The same as wait() with the default timeout.
    void synchronize();
    /// Whether the operation is complete and has no error.
    bool is_success() const;
    /// The error, or null.
    std::exception_ptr exception() const;
    /// The output tensors (views of the caller's buffers). Throws InvalidArgument before completion, and the
    /// operation's error if it failed.
    std::vector<TensorView> result() const;
    /// The group rank of the sender that a receive matched; InvalidArgument for other operations or before completion.
    int source_rank() const;
    /// A future that completes with the list of output tensors. For tensors on a device it completes as soon as the
    /// operation is enqueued; the call's stream, which is the current stream inside continuations, waits for the end of
    /// the operation. future.hpp says on which thread continuations run.
    Future<std::vector<TensorView>> get_future() const;
    /// A future that completes with the WorkResult; never with an exception.
    Future<WorkResult> get_future_result() const;
    /// co_await work gives result() or throws the error; InvalidArgument for an empty Work. It is the same as awaiting
    /// get_future(): the handle may be dropped meanwhile. A coroutine continues at once if the operation is already
    /// complete; so two coroutines that issue operations on one group may issue them in different orders on different
    /// ranks, which is an error.
    auto operator co_await() const& { return get_future().operator co_await(); }
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
    /// These compilers destroy the options of co_await async::all_reduce(x, {.group = g}) twice. Name the Work first.
    void operator co_await() const&& = delete;
#endif
    /// This handle as a std::any. unbox() is the inverse; it throws InvalidArgument for any other object.
    std::any boxed() const {
        return *this;
    }
    static Work unbox(const std::any& object);

 private:
    detail::Operation& checked(const char* method) const;
    template <class T>
    static void complete(const Future<T>& future, const detail::Operation& operation,
                         std::optional<std::type_identity_t<T>> value, std::exception_ptr error);
    std::shared_ptr<detail::Operation> operation_;
};

/// Waits for all; throws the first failure after all have ended.
TUTTI_API void wait_all(const std::vector<Work>& works);

}  // namespace tutti
