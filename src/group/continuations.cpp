#include "group/continuations.hpp"

#include "core/log.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
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
    std::map<const Group*, Queue> by_group;  // each has its thread
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

void serve(Queues& queues, const Group* group) {
    std::unique_lock lock(queues.mutex);
    Queue& queue = queues.by_group.at(group);
    while (queue.arrived.wait_for(lock, idle_limit, [&] { return !queue.waiting.empty(); })) {
        auto continuation = std::move(queue.waiting.front());
        queue.waiting.pop_front();
        lock.unlock();
        continuation();
        continuation = nullptr;  // what it holds goes without the lock, too
        lock.lock();
    }
    queues.by_group.erase(group);
}

void start_thread(Queues& queues, const Group* group) {
    sigset_t all, before;  // signals are for the program's threads
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread([&queues, group] { serve(queues, group); }).detach();
    } catch (...) {
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void run_later(const Group* group, std::function<void()> continuation) {
    Queues& all = queues();
    {
        const std::lock_guard lock(all.mutex);
        const auto [place, is_new] = all.by_group.try_emplace(group);
        try {
            if (is_new) start_thread(all, group);
            place->second.waiting.push_back(std::move(continuation));
            place->second.arrived.notify_one();
            return;
        } catch (const std::system_error& error) {
            all.by_group.erase(place);
            TUTTI_WARN("no thread for continuations ({}): they run where the operation ends", error.what());
        }
    }
    continuation();
}

}  // namespace tutti::detail
