// BiasedMutex: a mutex that its most frequent user locks and unlocks with plain loads and stores.
//
// An atomic read-modify-write waits until all earlier stores are visible to all CPUs, which takes as long as a whole
// short collective. The thread that locks the mutex most often, the owner, uses none: it locks by storing inside_ and
// then loading biased_. Another thread that wants the mutex clears biased_, issues the memory fence for both threads
// (membarrier), and waits until the owner has cleared inside_.
// Threads: any. lock(), try_lock() and unlock() work as in std::mutex; enter() and leave() are the fast path.
// Invariants: the first thread that enters 64 times without another thread in between becomes the owner for good; only
// the owner writes inside_. biased_ changes only under inner_: the owner sets it, any other thread that locks inner_
// clears it. Source: biased locking (Dice, Huang and Yang, 2001; "Asymmetric Dekker synchronization").
#pragma once

#include "core/assert.hpp"
#include "core/thread_safety.hpp"

#include <atomic>
#include <mutex>

namespace tutti {

class TUTTI_THREAD_ATTRIBUTE(capability("mutex")) BiasedMutex {
 public:
    BiasedMutex();
    BiasedMutex(const BiasedMutex&) = delete;
    BiasedMutex& operator=(const BiasedMutex&) = delete;

    void lock() TUTTI_THREAD_ATTRIBUTE(acquire_capability());
    bool try_lock() TUTTI_THREAD_ATTRIBUTE(try_acquire_capability(true));
    void unlock() TUTTI_THREAD_ATTRIBUTE(release_capability()) {
        if (owner_.load(std::memory_order_relaxed) == this_thread()) held_ = false;
        inner_.unlock();
    }

    /// As try_lock(), but quicker for the owner. The same thread must call leave().
    [[gnu::always_inline]] bool enter() TUTTI_THREAD_ATTRIBUTE(try_acquire_capability(true)) {
        if (owner_.load(std::memory_order_relaxed) == this_thread()) {
            if (held_) return false;
            // A store, then a load. The thread that clears biased_ orders them: its membarrier acts as a fence at some
            // point here. If the fence comes before the load, the load gives false; if after, the other thread sees
            // inside_. Only this thread sets biased_, while it holds inner_; so if it loads true, no other thread has
            // held the mutex since.
            inside_.store(true, std::memory_order_relaxed);
            std::atomic_signal_fence(std::memory_order_seq_cst);
            if (biased_.load(std::memory_order_relaxed)) return true;
            inside_.store(false, std::memory_order_relaxed);
        }
        return enter_inner();
    }
    [[gnu::always_inline]] void leave() TUTTI_THREAD_ATTRIBUTE(release_capability()) {
        if (owner_.load(std::memory_order_relaxed) == this_thread() && inside_.load(std::memory_order_relaxed))
            inside_.store(false, std::memory_order_release);  // after all writes made inside; taken() acquires it
        else
            unlock();
    }

    /// Whether enter() takes the fast path on this thread.
    bool is_owner() const noexcept {
        return owner_.load(std::memory_order_relaxed) == this_thread() && biased_.load(std::memory_order_relaxed);
    }
    /// Whether a thread can become the owner, because membarrier(2) works. False at first in a process of several
    /// threads.
    bool can_be_owned() const noexcept;

    /// Marks a scope in which this thread runs a user's function while it holds a BiasedMutex. In this scope lock()
    /// throws InvalidArgument, as it would deadlock.
    class UsersCode {
     public:
        UsersCode() noexcept { ++users_code_; }
        ~UsersCode() {
            TUTTI_ASSERT(users_code_ > 0);
            --users_code_;
        }
        UsersCode(const UsersCode&) = delete;
        UsersCode& operator=(const UsersCode&) = delete;
    };

    /// Holds the mutex during its lifetime.
    class TUTTI_THREAD_ATTRIBUTE(scoped_lockable) Lock {
     public:
        explicit Lock(BiasedMutex& mutex) TUTTI_THREAD_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) {
            mutex_.lock();
        }
        ~Lock() TUTTI_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
        Lock(const Lock&) = delete;
        Lock& operator=(const Lock&) = delete;

     private:
        BiasedMutex& mutex_;
    };

    /// Calls enter(), and leave() at the end of its lifetime. Its bool value says whether enter() succeeded; clang's
    /// thread safety analysis cannot follow this, since it is known only at run time.
    class Entry {
     public:
        [[gnu::always_inline]] explicit Entry(BiasedMutex& mutex) : mutex_(mutex.enter() ? &mutex : nullptr) {}
        [[gnu::always_inline]] ~Entry() { leave(); }
        Entry(const Entry&) = delete;
        Entry& operator=(const Entry&) = delete;
        explicit operator bool() const { return mutex_ != nullptr; }
        [[gnu::always_inline]] void leave() TUTTI_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
            if (mutex_ != nullptr) mutex_->leave();
            mutex_ = nullptr;
        }

     private:
        BiasedMutex* mutex_;
    };

 private:
    static const void* this_thread() noexcept { return &identity_; }
    bool enter_inner() TUTTI_THREAD_ATTRIBUTE(try_acquire_capability(true));
    void taken();

    inline static thread_local int users_code_ [[gnu::tls_model("initial-exec")]] = 0;
    inline static thread_local const char identity_ [[gnu::tls_model("initial-exec")]] = 0;

    std::mutex inner_;
    std::atomic<const void*> owner_{nullptr};
    std::atomic<bool> biased_{false};
    std::atomic<bool> inside_{false};
    bool held_ = false;           // only the owner uses it: the owner holds inner_
    const void* last_ = nullptr;  // the thread that took inner_ last
    int alone_ = 0;               // entries of last_ since another thread's last one
};

}  // namespace tutti
