// A mutex that a process has one of, and that outlives main(). A fork waits until it is free, so that the child, which
// has none of its parent's threads, finds it free, and what it guards whole.
//
// Threads: any. Nobody forks, and nobody waits for another thread, while he holds one.
#pragma once

#include <mutex>

namespace tutti::nccl_library {

class ProcessMutex {
 public:
    ProcessMutex();
    ProcessMutex(const ProcessMutex&) = delete;
    ProcessMutex& operator=(const ProcessMutex&) = delete;
    ~ProcessMutex() = default;  // of one that could not be made alone: handlers of forks know it

    void lock() { mutex_.lock(); }
    bool try_lock() { return mutex_.try_lock(); }
    void unlock() { mutex_.unlock(); }

 private:
    std::mutex mutex_;
};

}  // namespace tutti::nccl_library
