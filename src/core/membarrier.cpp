#include "core/membarrier.hpp"

#include "core/assert.hpp"
#include "core/thread.hpp"

#include <tutti/error.hpp>

#include <linux/membarrier.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::membarrier {
namespace {

struct State {
    std::mutex mutex;
    pid_t asked = 0;  // by this process: a child of fork() asks again
    std::atomic<bool> own{false};
    bool global = false;
    std::vector<std::function<void()>> waiting;
};
// Threads that still wait for the kernel may outlive static objects.
State& state() {
    static State& instance = *new State;
    return instance;
}

bool call(int command) {
    return ::syscall(SYS_membarrier, command, 0, 0) == 0;
}

bool has_one_thread() {
    struct stat threads {};
    return ::stat("/proc/self/task", &threads) == 0 && threads.st_nlink == 3;  // ".", ".." and one
}

void ask() {
    State& s = state();
    if (call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)) s.own.store(true, std::memory_order_release);
    if (!call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)) return;
    std::vector<std::function<void()>> waiting;
    {
        const std::lock_guard lock(s.mutex);
        s.global = true;
        waiting.swap(s.waiting);
    }
    for (const auto& then : waiting) then();
}

}  // namespace

void request() {
    State& s = state();
    {
        const std::lock_guard lock(s.mutex);
        if (std::exchange(s.asked, ::getpid()) == ::getpid()) return;
    }
    if (has_one_thread()) return ask();
    try {
        thread::start({"tutti-barrier", "registering for memory barriers"}, ask).detach();
    } catch (const DistBackendError&) {  // NOLINT(bugprone-empty-catch): then every thread makes fences
    }
}

bool has_own() noexcept {
    return state().own.load(std::memory_order_acquire);
}

void fence_own_process() noexcept {
    TUTTI_ASSERT(has_own());
    const bool fenced = call(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    TUTTI_ASSERT(fenced);
    (void)fenced;
}

void when_global(std::function<void()> then) {
    TUTTI_ASSERT(then != nullptr);
    request();
    State& s = state();
    {
        const std::lock_guard lock(s.mutex);
        if (!s.global) return s.waiting.push_back(std::move(then));
    }
    then();
}

void fence_all_processes() noexcept {
    call(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

}  // namespace tutti::membarrier
