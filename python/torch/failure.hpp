// What tutti throws, as PyTorch's exceptions.
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

/// Where something failed.
struct Place {
    int rank = -1;
    const char* operation = nullptr;
};

/// The same failure as PyTorch knows it: DistBackendError (what ends a collective), DistStoreError, DistNetworkError,
/// or a plain c10::Error for an impossible request; Python sees RuntimeError or a class derived from it. Others
/// unchanged. A message that does not name rank and operation of `place` gets them at its end; where a time limit has
/// ended it says "Timed out", as gloo's.
std::exception_ptr translated(std::exception_ptr error, const Place& place = {});

/// Runs `function`; what it throws arrives translated.
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

/// The failures of a group, and the functions that are called at once when there is one. Threads: any.
class Failures {
 public:
    using Hook = std::function<void()>;

    /// `hook` is called once, when something fails for the first time or tell_hooks() is called: on the thread that
    /// notices, with no lock held. One of the same `id` is replaced.
    void add_hook(std::int64_t id, Hook hook);
    void remove_hook(std::int64_t id);
    void tell_hooks() noexcept { hooks()->tell(); }
    /// The group has been made anew: forgets what has failed before. What still goes on then calls no hooks.
    void reset();

    /// An operation that was carried out within its call failed so.
    void note(const std::exception_ptr& error) noexcept;
    /// An operation that goes on after its call: how it ends is looked up when somebody asks, or with later ones.
    void watch(const tutti::Work& work);
    /// TIMEOUT or COMM_ERROR of what failed first; SUCCESS as long as nothing has.
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
    /// Whether it is a failure of the group's.
    bool set_first(const std::exception_ptr& error) noexcept;
    void look_up();

    std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
    std::atomic<bool> has_hooks_{false};
    std::atomic<c10d::ErrorType> first_{c10d::ErrorType::SUCCESS};
    std::mutex mutex_;
    std::vector<tutti::Work> watched_;
    std::size_t next_look_up_ = 16;  // so many are watched then
};

}  // namespace tutti::torch
