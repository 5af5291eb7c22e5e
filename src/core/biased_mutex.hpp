// BiasedMutex: a mutex whose usual user takes and gives it back with plain loads and stores.
//
// An atomic read-modify-write waits until all earlier stores are visible to all CPUs, which takes as long as a whole
// short collective. Here the thread that locks most, the owner, uses none: it stores inside_, then loads biased_.
// Another thread that wants the mutex clears biased_, issues the memory fence for both threads (membarrier), and waits
// until the owner has left.
//
// Threads: any. lock(), try_lock() and unlock() are those of a mutex; enter() and leave() are the short form.
// Invariants: the first thread that has entered often enough becomes the owner for good; only it writes inside_.
// biased_ changes under inner_ only: the owner sets it, any other thread that takes inner_ clears it. Source: biased
// locking (Dice, Huang and Yang, 2001; "Asymmetric Dekker synchronization").
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

    /// As try_lock(), quicker for the thread that does it often. Ends with leave(), by the same thread.
    [[gnu::always_inline]] bool enter() TUTTI_THREAD_ATTRIBUTE(try_acquire_capability(true)) {
        if (owner_.load(std::memory_order_relaxed) == this_thread()) {
            if (held_) return false;
            // A store and a look. The thread that clears biased_ keeps them in order: its membarrier is a fence at some
            // point here. If the fence comes before the look, the look sees false; if after, that thread sees inside_.
            // If this thread finds true it has stored that itself, behind the lock of inner_, so nobody has been in
            // since.
            inside_.store(true, std::memory_order_relaxed);
            std::atomic_signal_fence(std::memory_order_seq_cst);
            if (biased_.load(std::memory_order_relaxed)) return true;
            inside_.store(false, std::memory_order_relaxed);
        }
        return enter_inner();
    }
    [[gnu::always_inline]] void leave() TUTTI_THREAD_ATTRIBUTE(release_capability()) {
        if (owner_.load(std::memory_order_relaxed) == this_thread() && inside_.load(std::memory_order_relaxed))
            inside_.store(false, std::memory_order_release);  // behind all writes made inside; taken() acquires it
        else
            unlock();
    }

    /// Whether this thread enters by the short form.
    bool is_owner() const noexcept {
        return owner_.load(std::memory_order_relaxed) == this_thread() && biased_.load(std::memory_order_relaxed);
    }
    /// Whether a thread can become the owner: the kernel makes the fence. False at first in a process of several
    /// threads.
    bool can_be_owned() const noexcept;

    /// While it lives, its thread runs a user's code with a mutex held: lock() throws InvalidArgument, where it would
    /// wait for itself.
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

    /// Holds it while it lives.
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

    /// A function that has entered holds one. Whether it has, it says at run time, so the analysis of thread safety
    /// cannot follow it.
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
    bool held_ = false;           // the owner's: it has inner_
    const void* last_ = nullptr;  // the thread that took inner_ last
    int alone_ = 0;               // its entries since another thread did
};

}  // namespace tutti
