#include "process_mutex.hpp"

#include <pthread.h>
#include <sched.h>

#include <vector>

namespace tutti::nccl_library {
namespace {

struct Known {
    std::mutex mutex;
    std::vector<ProcessMutex*> all;
};
Known& known() {
    static auto* const instance = new Known;
    return *instance;
}

void unlock_all() {
    for (ProcessMutex* one : known().all) one->unlock();
    known().mutex.unlock();
}

// A thread may hold one of them and wait for another: so who finds one taken lets go of all.
void lock_all() {
    known().mutex.lock();
    const auto& all = known().all;
    for (std::size_t held = 0; held < all.size();) {
        if (all[held]->try_lock()) {
            ++held;
            continue;
        }
        while (held > 0) all[--held]->unlock();
        ::sched_yield();
    }
}

}  // namespace

ProcessMutex::ProcessMutex() {
    static const int once = ::pthread_atfork(lock_all, unlock_all, unlock_all);
    (void)once;
    const std::lock_guard lock(known().mutex);
    known().all.push_back(this);
}

}  // namespace tutti::nccl_library
