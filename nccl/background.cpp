#include "background.hpp"

#include "communicator.hpp"
#include "failure.hpp"
#include "process_mutex.hpp"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <list>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti::nccl_library {
namespace {

using Communicators = std::vector<std::shared_ptr<Communicator>>;

// A child that was forked has none of its parent's threads: it begins with an empty list, and their communicators stay
// as they are.
struct Running {
    static void begin_anew();
    ProcessMutex mutex;
    std::condition_variable_any ended;
    std::list<Communicators> all;
};
Running& running() {
    static Running* const instance = [] {  // the threads may outlive main()
        auto* const made = new Running;
        ::pthread_atfork(nullptr, nullptr, Running::begin_anew);
        return made;
    }();
    return *instance;
}
void Running::begin_anew() {
    new (&running().all) std::list<Communicators>;
}

void give_up() {
    constexpr std::chrono::seconds limit{2};
    Running& now = running();
    std::unique_lock<ProcessMutex> lock(now.mutex);
    const std::list<Communicators> all = now.all;
    lock.unlock();
    for (const Communicators& some : all) {
        for (const auto& one : some) one->abort();
    }
    lock.lock();
    now.ended.wait_for(lock, limit, [&] { return now.all.empty(); });
}

}  // namespace

void run_in_background(Communicators communicators, std::function<void()> work) {
    Running& now = running();
    static const int registered = std::atexit(give_up);
    (void)registered;
    const std::lock_guard lock(now.mutex);
    const auto entry = now.all.insert(now.all.end(), communicators);
    for (const auto& one : communicators) one->begin_background();
    try {
        std::thread([&now, entry, communicators, work = std::move(work)]() mutable {
            work();
            work = nullptr;
            for (const auto& one : communicators) one->end_background();
            communicators.clear();
            const std::lock_guard end(now.mutex);
            now.all.erase(entry);
            now.ended.notify_all();
        }).detach();
    } catch (const std::system_error& error) {
        for (const auto& one : communicators) one->end_background();
        now.all.erase(entry);
        fail(ncclSystemError, "there is no thread for a call that does not block: ", error.what());
    }
}

}  // namespace tutti::nccl_library
