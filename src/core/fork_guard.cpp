#include "core/fork_guard.hpp"

#include "core/assert.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace tutti::fork_guard {
namespace {

std::atomic<unsigned> forks{0};

struct Noted {
    std::mutex mutex;
    std::vector<int> fds;
};

/// Never destroyed: a fork may come while the process ends.
Noted& noted() {
    static Noted* const instance = [] {
        auto* made = new Noted;
        ::pthread_atfork([] { noted().mutex.lock(); }, [] { noted().mutex.unlock(); },
                         [] {
                             // Only async-signal-safe calls: the vector stays as it is, and is not used again.
                             for (const int fd : noted().fds) ::close(fd);
                             noted().fds.clear();
                             forks.fetch_add(1, std::memory_order_relaxed);
                             noted().mutex.unlock();
                         });
        return made;
    }();
    return *instance;
}

}  // namespace

void close_in_children(int fd) {
    const std::lock_guard lock(noted().mutex);
    TUTTI_ASSERT(fd >= 0);
    TUTTI_ASSERT(std::ranges::find(noted().fds, fd) == noted().fds.end());
    noted().fds.push_back(fd);
}

unsigned generation() noexcept {
    return forks.load(std::memory_order_relaxed);
}

void forget(int fd) {
    const std::lock_guard lock(noted().mutex);
    TUTTI_ASSERT(fd >= 0);
    auto& fds = noted().fds;
    if (const auto found = std::ranges::find(fds, fd); found != fds.end()) {
        *found = fds.back();
        fds.pop_back();
    }
}

}  // namespace tutti::fork_guard
