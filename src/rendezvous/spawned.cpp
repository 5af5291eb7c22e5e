#include "rendezvous/spawned.hpp"

#include "core/env.hpp"
#include "rendezvous/job_environment.hpp"

#include <tutti/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

extern char** environ;  // NOLINT(readability-redundant-declaration): unistd.h has it with _GNU_SOURCE only

namespace tutti::rendezvous {
namespace {

struct SpawnedProcess {
    std::mutex mutex;
    Spawned spawned;
    pid_t pid = 0;
    std::map<std::string, std::string, std::less<>> of_parents_job;
};
/// Never destroyed: a fork may come while the process ends.
SpawnedProcess& own_process() {
    static auto* const instance = new SpawnedProcess;
    return *instance;
}

thread_local std::optional<Spawned> of_thread;

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> twins{
    {{"MASTER_ADDR", "MASTER_PORT"}, {"MASTER_PORT", "MASTER_ADDR"}, {"RANK", "WORLD_SIZE"}, {"WORLD_SIZE", "RANK"}}};

bool is_in_a_job() {
    try {
        const Surroundings variables_alone{env::get, [] { return std::optional<std::string>(); },
                                           [] { return std::optional<PmixFacts>(); }};
        return static_cast<bool>(read_job_environment(variables_alone).rank);
    } catch (const InvalidArgument&) {
        return true;  // as what its variables are meant, in any case
    }
}

std::map<std::string, std::string, std::less<>> environment() {
    std::map<std::string, std::string, std::less<>> all;
    for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
        const std::string_view text(*one);
        const auto equal = text.find('=');
        if (equal != std::string_view::npos) all.emplace(text.substr(0, equal), text.substr(equal + 1));
    }
    return all;
}

}  // namespace

void be_spawned(Spawned spawned) {
    auto of_parents_job = is_in_a_job() ? environment() : decltype(environment())();
    SpawnedProcess& own = own_process();
    const std::lock_guard lock(own.mutex);
    own.spawned = std::move(spawned);
    own.pid = ::getpid();
    own.of_parents_job = std::move(of_parents_job);
}

SpawnedThread::SpawnedThread(int rank, int size) {
    of_thread = Spawned{.rank = rank, .size = size, .is_thread = true};
}
SpawnedThread::~SpawnedThread() {
    of_thread.reset();
}

std::optional<Spawned> spawned() {
    if (of_thread) return of_thread;
    SpawnedProcess& own = own_process();
    const std::lock_guard lock(own.mutex);
    return own.pid == ::getpid() ? std::optional(own.spawned) : std::nullopt;
}

bool is_of_parents_job(std::string_view variable, std::string_view value) {
    SpawnedProcess& own = own_process();
    const std::lock_guard lock(own.mutex);
    if (own.pid != ::getpid()) return false;
    const auto is_inherited = [&](std::string_view name, std::string_view has) {
        const auto found = own.of_parents_job.find(name);
        return found != own.of_parents_job.end() && found->second == has;
    };
    if (!is_inherited(variable, value)) return false;
    // A program that sets one of two may have found the other as it wants it.
    const auto twin = std::ranges::find(twins, variable, &std::pair<std::string_view, std::string_view>::first);
    if (twin == twins.end()) return true;
    const auto other = env::get(twin->second);
    return !other || is_inherited(twin->second, *other);
}

}  // namespace tutti::rendezvous
