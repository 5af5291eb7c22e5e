// Worlds in forked children. A child has its parent's groups, but none of its threads, and what it did to connections
// or memory would be done to the parent: its groups refuse everything, and are let go of without a word.
#include "group/world.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

namespace tutti::detail {
namespace {

struct Worlds {
    std::mutex mutex;
    std::vector<World*> here;
    std::vector<World*> inherited;  // for good: nobody may end them
};

/// Never destroyed: a fork may come while the process ends.
Worlds& worlds() {
    static auto* const instance = new Worlds;
    return *instance;
}

}  // namespace

void World::watch_forks() {
    if_inherited_ = std::make_exception_ptr(InvalidArgument(
        fmt::format(
            "group \"{}\": this process is a fork of process {}, which joined it: expected a group that was made "
            "in this process",
            name_, ::getpid()),
        {.group = name_, .rank = rank_}));
    static const int once = ::pthread_atfork([] { worlds().mutex.lock(); }, [] { worlds().mutex.unlock(); },
                                             [] {
                                                 inherit_all();
                                                 worlds().mutex.unlock();
                                             });
    (void)once;
    const std::lock_guard lock(worlds().mutex);
    worlds().here.push_back(this);
}

// Of this process, as long as they live.
std::vector<std::shared_ptr<World>> World::all() {
    std::vector<std::shared_ptr<World>> alive;
    const std::lock_guard lock(worlds().mutex);
    for (World* world : worlds().here) {
        if (auto held = world->weak_from_this().lock()) alive.push_back(std::move(held));
    }
    return alive;
}

void World::forget_forks() {
    const std::lock_guard lock(worlds().mutex);
    std::erase(worlds().here, this);
}

void World::inherit_all() {
    auto& all = worlds();
    for (World* world : all.here) world->inherit();
    all.inherited.insert(all.inherited.end(), all.here.begin(), all.here.end());
    all.here.clear();
}

// Other threads may have been anywhere: only what says that it is over is written.
void World::inherit() noexcept {
    new (&mutex_) BiasedMutex;
    groups_.renew_locks();
    health_.renew();
    inherited_ = true;
    new (&failure_) std::exception_ptr(if_inherited_);
}

}  // namespace tutti::detail
