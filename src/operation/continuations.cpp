#include "operation/continuations.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/thread.hpp"

#include <tutti/error.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

namespace tutti::detail {
namespace {

constexpr std::chrono::seconds idle_limit{1};

struct Queue {
    std::deque<std::function<void()>> waiting;
    std::condition_variable arrived;
};

/// Never destroyed: its threads may run while the process ends.
struct Queues {
    std::mutex mutex;
    std::map<const Member*, Queue> by_group;  // each has its thread
    const pid_t owner = ::getpid();
};

/// A forked child has none of its parent's threads, and gets queues of its own.
Queues& queues() {
    static std::atomic<Queues*> current{nullptr};
    Queues* found = current.load();
    while (!found || found->owner != ::getpid()) {
        auto* made = new Queues;
        if (current.compare_exchange_strong(found, made)) return *made;
        delete made;
    }
    return *found;
}

void serve(Queues& queues, const Member* group) {
    std::unique_lock lock(queues.mutex);
    Queue& queue = queues.by_group.at(group);
    while (queue.arrived.wait_for(lock, idle_limit, [&] { return !queue.waiting.empty(); })) {
        auto continuation = std::move(queue.waiting.front());
        TUTTI_ASSERT(continuation != nullptr);
        queue.waiting.pop_front();
        lock.unlock();
        try {
            continuation();
        } catch (const std::exception& error) {
            TUTTI_ERROR("a continuation has failed: {}", error.what());
        }
        continuation = nullptr;  // the objects that it holds go without the lock, too
        lock.lock();
    }
    TUTTI_ASSERT(lock.owns_lock() && queue.waiting.empty());
    queues.by_group.erase(group);
}

void start_thread(Queues& queues, const Member* group) {
    TUTTI_ASSERT(queues.by_group.contains(group));
    thread::start({"tutti-then", "the continuations of a group"}, [&queues, group] { serve(queues, group); }).detach();
}

}  // namespace

void run_later(const Member* group, std::function<void()> continuation) {
    Queues& all = queues();
    TUTTI_ASSERT(continuation != nullptr && all.owner == ::getpid());
    {
        const std::lock_guard lock(all.mutex);
        const auto [place, is_new] = all.by_group.try_emplace(group);
        try {
            if (is_new) start_thread(all, group);
            place->second.waiting.push_back(std::move(continuation));
            TUTTI_ASSERT(!place->second.waiting.empty());
            place->second.arrived.notify_one();
            return;
        } catch (const DistBackendError& error) {
            all.by_group.erase(place);
            TUTTI_WARN("{}; they run where the operation ends", error.what());
        }
    }
    continuation();
}

}  // namespace tutti::detail
