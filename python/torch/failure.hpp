// tutti's exceptions as PyTorch's.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <c10/util/Exception.h>

#include <tutti/error.hpp>
#include <tutti/work.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti::torch {

/// The rank and operation of a failure.
struct Place {
    int rank = -1;
    const char* operation = nullptr;
};

/// The same failure as PyTorch knows it: DistBackendError (for errors that end a collective), DistStoreError,
/// DistNetworkError, or a plain c10::Error for an impossible request; Python sees RuntimeError or a class derived from
/// it. Others unchanged. A message that does not name rank and operation of `place` gets them at its end; the message
/// of a timeout says "Timed out", as gloo's does.
std::exception_ptr translated(std::exception_ptr error, const Place& place = {});

/// Runs `function` and translates its exceptions.
template <class Function>
decltype(auto) translating(Function&& function) {
    try {
        return function();
    } catch (...) {
        std::rethrow_exception(translated(std::current_exception()));
    }
}

/// The same for a store's functions, whose impossible requests are ValueErrors in Python.
template <class Function>
decltype(auto) translating_of_store(Function&& function) {
    try {
        return function();
    } catch (const InvalidArgument& error) {
        throw c10::ValueError(c10::SourceLocation{"tutti", "tutti.torch", 0}, error.what());
    } catch (...) {
        std::rethrow_exception(translated(std::current_exception()));
    }
}

/// The failures of a group, and the hooks that run at the first one. Threads: any.
class Failures {
 public:
    using Hook = std::function<void()>;

    /// Calls `hook` once, at the first failure or at tell_hooks(), on the thread that notices, with no lock held.
    /// Replaces a hook of the same `id`.
    void add_hook(std::int64_t id, Hook hook);
    void remove_hook(std::int64_t id);
    void tell_hooks() noexcept { hooks()->tell(); }
    /// The group has been made anew: forgets earlier failures. Operations that are still under way call no hooks.
    void reset();

    /// Records the failure of an operation that ran within its call.
    void note(const std::exception_ptr& error) noexcept;
    /// Watches an operation that goes on after its call: looks up its end on a query, or with later operations.
    void watch(const tutti::Work& work);
    /// TIMEOUT or COMM_ERROR of the first failure; SUCCESS without one.
    c10d::ErrorType first();

 private:
    struct Hooks {
        std::mutex mutex;
        std::map<std::int64_t, Hook> all;
        bool told = false;
        void tell() noexcept;
    };
    std::shared_ptr<Hooks> hooks() {
        const std::lock_guard lock(mutex_);
        return hooks_;
    }
    static void listen(const std::shared_ptr<Hooks>& hooks, const tutti::Work& work);
    /// Returns whether `error` is a failure of the group.
    bool set_first(const std::exception_ptr& error) noexcept;
    void look_up();

    std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
    std::atomic<bool> has_hooks_{false};
    std::atomic<c10d::ErrorType> first_{c10d::ErrorType::SUCCESS};
    std::mutex mutex_;
    std::vector<tutti::Work> watched_;
    std::size_t next_look_up_ = 16;  // the number of watched operations at the next look-up
};

}  // namespace tutti::torch
