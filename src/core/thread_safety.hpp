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
/// A field that is accessed only while `mutex` is held.
#define TUTTI_GUARDED_BY(mutex) TUTTI_THREAD_ATTRIBUTE(guarded_by(mutex))
/// A function that is called only while `mutex` is held. The analysis identifies a mutex by the expression that names
/// it: if a caller names the same mutex by another expression, only the function's own body is checked.
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
