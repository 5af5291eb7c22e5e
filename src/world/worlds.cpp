#include "world/worlds.hpp"

#include "core/assert.hpp"
#include "world/world.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti::detail::worlds {
namespace {

// Time for the operations under way when a program ends without having left its groups.
constexpr std::chrono::milliseconds time_at_exit{2000};

struct Worlds {
    std::mutex mutex;
    std::vector<World*> here;
    std::vector<World*> inherited;  // for good: this process may not end them
};

/// Never destroyed: a fork may come while the process ends.
Worlds& worlds() {
    static auto* const instance = new Worlds;
    return *instance;
}

void inherit_all() {
    auto& all = worlds();
    for (World* world : all.here) world->inherit();
    all.inherited.insert(all.inherited.end(), all.here.begin(), all.here.end());
    TUTTI_ASSERT(std::ranges::all_of(all.here, [](const World* world) { return world->inherited(); }));
    all.here.clear();
}

// Of this process, as long as they live.
std::vector<std::shared_ptr<World>> all() {
    std::vector<std::shared_ptr<World>> alive;
    const std::lock_guard lock(worlds().mutex);
    for (World* world : worlds().here) {
        if (auto held = world->weak_from_this().lock()) alive.push_back(std::move(held));
    }
    return alive;
}

void leave_all(std::chrono::milliseconds limit, const std::string& reason, bool may_close) noexcept {
    TUTTI_ASSERT(limit.count() >= 0);
    const Deadline end = Deadline::after(limit);
    for (const auto& world : all()) {
        try {
            world->departure().leave_by(end, reason);
            if (may_close) world->departure().close();
        } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no thread is left to tell
        }
    }
}

}  // namespace

std::exception_ptr add(World& world) {
    static const int once = ::pthread_atfork([] { worlds().mutex.lock(); }, [] { worlds().mutex.unlock(); },
                                             [] {
                                                 inherit_all();
                                                 worlds().mutex.unlock();
                                             });
    (void)once;
    const std::lock_guard lock(worlds().mutex);
    TUTTI_ASSERT(std::ranges::find(worlds().here, &world) == worlds().here.end());
    worlds().here.push_back(&world);
    return std::make_exception_ptr(InvalidArgument(
        fmt::format("group \"{}\": this process is a fork of process {}, which joined it: expected a group that was "
                    "made in this process",
                    world.name(), ::getpid()),
        {.group = world.name(), .rank = world.rank()}));
}

void remove(World& world) {
    const std::lock_guard lock(worlds().mutex);
    std::erase(worlds().here, &world);
    TUTTI_ASSERT(std::ranges::find(worlds().here, &world) == worlds().here.end());
}

void leave_all(std::chrono::milliseconds limit, const std::string& reason) noexcept {
    leave_all(limit, reason, !rendezvous::Membership::on_own_thread());
}

// On a thread of its own: this one's variables have gone already.
[[gnu::noinline]] void leave_at_exit() {
    struct AtExit {
        ~AtExit() {
            if (all().empty()) return;
            try {
                // A callback on a membership's thread may have called exit(): that thread waits for this one.
                const bool may_close = !rendezvous::Membership::on_own_thread();
                std::thread([=] { leave_all(time_at_exit, "its program has ended", may_close); }).join();
            } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): then the peers learn of it
            }
        }
    };
    static const AtExit once;
}

}  // namespace tutti::detail::worlds
