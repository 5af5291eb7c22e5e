// Thread safety that the compiler checks: a mutex that clang's analysis knows (-Wthread-safety), and the annotations of
// the data that it guards. Other compilers see a plain std::mutex. Source: clang's documentation of its thread safety
// analysis.
#pragma once

#include <mutex>

#if defined(__clang__)
#define TUTTI_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define TUTTI_THREAD_ATTRIBUTE(x)
#endif
/// A field that is only touched while that mutex is held.
#define TUTTI_GUARDED_BY(mutex) TUTTI_THREAD_ATTRIBUTE(guarded_by(mutex))
/// A function that is only called while that mutex is held. The analysis knows a mutex by the expression that leads to
/// it: where a caller has the same one by another way, only the function itself is checked.
#define TUTTI_REQUIRES(mutex) TUTTI_THREAD_ATTRIBUTE(requires_capability(mutex))

namespace tutti {

class TUTTI_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
    void lock() TUTTI_THREAD_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
    void unlock() TUTTI_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
    std::mutex mutex_;
};

class TUTTI_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
    explicit MutexLock(Mutex& mutex) TUTTI_THREAD_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) {
        mutex_.lock();
    }
    ~MutexLock() TUTTI_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
    MutexLock(const MutexLock&) = delete;
    MutexLock& operator=(const MutexLock&) = delete;

 private:
    Mutex& mutex_;
};

}  // namespace tutti
