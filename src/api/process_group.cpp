// ProcessGroup, the default group, initialisation.
#include "api/arguments.hpp"
#include "api/environment.hpp"
#include "core/deadline.hpp"
#include "core/debug_level.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "core/per_thread.hpp"
#include "group/group.hpp"
#include "record/call_site.hpp"
#include "rendezvous/job_environment.hpp"
#include "rendezvous/rendezvous.hpp"
#include "world/worlds.hpp"

#include <tutti/distributed.hpp>
#include <tutti/error.hpp>
#include <tutti/newcomers.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

namespace tutti {
namespace {

struct Default {
    std::mutex mutex;
    ProcessGroup group;
    std::atomic<std::uint64_t> changes{0};  // of `group`: the group that a thread remembers holds until the next
};
Default& state() {
    static Default& instance = *new Default;  // programs call in destructors of their static objects, too
    return instance;
}

// The default group that a program leaves ends behind the worlds (worlds::leave_at_exit): so this is called before
// there is one.
[[gnu::noinline]] void end_at_exit() {
    struct End {
        ~End() { state().group = {}; }
    };
    static const End once;
}

// A thread's memory of the default group. It keeps a group that another thread has replaced until this thread's next
// call, so that calls need not count references.
struct Remembered {
    std::uint64_t changes = 0;
    std::shared_ptr<detail::Group> group;
};

detail::Group& checked(const ProcessGroup& group) {
    if (group.is_non_member()) throw InvalidArgument("ProcessGroup: this rank is not in the group: expected a member");
    if (!group) throw InvalidArgument("ProcessGroup: an empty handle: expected a group");
    return *group.impl();
}
[[noreturn]] void refuse_without_default(const std::string& caller) {
    throw InvalidArgument(caller + "there is no default group; call init_process_group first", {},
                          ErrorCode::not_initialized);
}
ProcessGroup named_or_default(const ProcessGroup& group, const char* caller) {
    if (group || group.is_non_member()) return group;
    const std::lock_guard lock(state().mutex);
    if (!state().group) refuse_without_default(fmt::format("{}: ", caller));
    return state().group;
}

// One byte from each rank to each, where the process is bound to its CPU.
void connect_if_bound(const ProcessGroup& group, const std::optional<Device>& device) {
    if (!device || device->type != Device::Type::cpu) return;
    std::vector<std::uint8_t> out(static_cast<std::size_t>(group.size())), in(out.size());
    all_to_all_single(in, out, {.group = group});
}

}  // namespace

ProcessGroup::ProcessGroup(const ProcessGroupOptions& options) : group_(detail::Group::of_all(options)) {
    connect_if_bound(*this, options.device_id);
}
int ProcessGroup::rank() const {
    return outside_ ? -1 : checked(*this).rank();
}
int ProcessGroup::size() const {
    return outside_ ? -1 : checked(*this).size();
}
const std::string& ProcessGroup::description() const {
    return checked(*this).description();
}
std::vector<int> ProcessGroup::ranks() const {
    return checked(*this).ranks().all();
}
int ProcessGroup::global_rank(int group_rank) const {
    const detail::Group& group = checked(*this);
    return group.ranks().global(api::rank_in("get_global_rank", "group_rank", {}, group_rank, group));
}
int ProcessGroup::group_rank(int global_rank) const {
    return api::rank_in("get_group_rank", "global_rank", global_rank, {}, checked(*this));
}
bool ProcessGroup::is_newcomer() const {
    return checked(*this).is_newcomer();
}
const std::string& ProcessGroup::name() const {
    return checked(*this).name();
}
std::chrono::milliseconds ProcessGroup::timeout() const {
    return checked(*this).timeout();
}
void ProcessGroup::set_timeout(std::chrono::milliseconds timeout) {
    if (timeout <= milliseconds::zero()) {
        throw InvalidArgument(fmt::format("ProcessGroup.set_timeout: {} ms: expected more than zero", timeout.count()));
    }
    checked(*this).set_timeout(timeout);
}
Determinism ProcessGroup::determinism() const {
    return checked(*this).determinism();
}
const std::string& ProcessGroup::backend() const {
    const detail::Group& group = checked(*this);
    const backend::Devices& names = group.backends().names();
    const auto& device = group.backends().device();
    const auto bound = device ? names.find(device->type) : names.end();
    if (bound != names.end()) return bound->second;
    return backend::main_backend(names, backend::devices_of_machine());
}
std::vector<int> ProcessGroup::hosts() const {
    return checked(*this).planner().layout().host_of;
}
void ProcessGroup::abort(const std::string& reason) {
    checked(*this).abort(reason);
}
void ProcessGroup::destroy() {
    checked(*this).leave();
}

void leave_all_groups(std::chrono::milliseconds limit) noexcept {
    detail::worlds::leave_all(limit, "its program has ended");
}

namespace {

/// Throws for a fault in the options or the environment of this process.
milliseconds check(const InitOptions& options) {
    take_debug_level_from_env();
    api::check_environment();
    const auto devices = backend::parse(options.backend, options.device_id, "init_process_group");
    const auto timeout = options.timeout.value_or(backend::default_timeout_of(devices));
    if (timeout <= milliseconds::zero()) {
        throw InvalidArgument(
            fmt::format("init_process_group: timeout {} ms: expected more than zero", timeout.count()));
    }
    return timeout;
}

/// Nothing tells this process its place in a world, and its launcher says that it is a newcomer.
bool comes_later(const InitOptions& o) {
    return (o.init_method.empty() || o.init_method == "env://") && o.rank == -1 && o.world_size == -1 && !o.store &&
           rendezvous::read_job_environment().is_newcomer;
}

/// A group that loses a rank while it takes newcomers in sends them back to wait.
ProcessGroup join_later(const InitOptions& o, std::optional<milliseconds> limit) {
    const Deadline deadline = Deadline::after(limit.value_or(std::chrono::years(1)));
    const Store place = rendezvous::store_of_launcher(deadline.timeout());
    for (;;) {
        try {
            return join({.place = place, .timeout = deadline.timeout(), .pg_options = o.pg_options});
        } catch (const DistBackendError& error) {
            const bool has_ended = error.code() == ErrorCode::interrupted || deadline.expired();
            if (has_ended || error.code() == ErrorCode::collective_mismatch) throw;
            TUTTI_INFO("this process waits again for a group: {}", error.what());
        }
    }
}

}  // namespace

void init_process_group(const InitOptions& options) {
    const record::CallSite site;
    end_at_exit();
    if (is_initialized()) {
        throw InvalidArgument("init_process_group: there is a default group already; call destroy_process_group first");
    }
    if (comes_later(options)) {
        (void)check(options);
        return set_default_group(join_later(options, options.timeout));
    }
    const ProcessGroupOptions defaults;
    rendezvous::Request request{.init_method = options.init_method,
                                .rank = options.rank,
                                .world_size = options.world_size,
                                .store = options.store};
    rendezvous::Joined joined;
    try {
        request.timeout = check(options);
        joined = rendezvous::resolve(request);
    } catch (const InvalidArgument& error) {
        rendezvous::say_failed(request, defaults.name, error);  // the others fail with this rank
        throw;
    }
    try {
        ProcessGroup group(detail::Group::of_all({.store = joined.store,
                                                  .rank = joined.rank,
                                                  .world_size = joined.world_size,
                                                  .timeout = request.timeout,
                                                  .name = defaults.name,
                                                  .transport = options.transport,
                                                  .determinism = options.determinism,
                                                  .backend = options.backend,
                                                  .pg_options = options.pg_options,
                                                  .device_id = options.device_id},
                                                 {.worlds_in_store = joined.worlds()}));
        connect_if_bound(group, options.device_id);
        set_default_group(std::move(group));
    } catch (const DistError& error) {
        rendezvous::stay_for_others(error, joined.hosts_store, joined.world_size);
        throw;
    }
}

void destroy_process_group(ProcessGroup group) {
    if (group.is_non_member()) return;
    const bool is_default = !group || (is_initialized() && group == default_group());
    group = named_or_default(group, "destroy_process_group");
    struct Forget {
        bool is_default;
        ~Forget() {
            if (is_default) set_default_group({});
        }
    } forget{is_default};
    group.destroy();
}

bool is_available() noexcept {
    return true;
}
bool is_initialized() noexcept {
    const std::lock_guard lock(state().mutex);
    return static_cast<bool>(state().group);
}
ProcessGroup default_group() {
    const std::lock_guard lock(state().mutex);
    if (!state().group) refuse_without_default("");
    return state().group;
}
void set_default_group(ProcessGroup group) {
    end_at_exit();
    ProcessGroup old;  // goes after the lock, as does the group that this thread remembers
    Remembered& remembered = PerThread<Remembered>::get();
    const std::shared_ptr<detail::Group> forgotten = std::move(remembered.group);
    const std::lock_guard lock(state().mutex);
    old = std::exchange(state().group, std::move(group));
    remembered = {state().changes.fetch_add(1, std::memory_order_release) + 1, state().group.impl()};
}
const std::shared_ptr<detail::Group>& api::default_impl() noexcept {
    Default& now = state();
    Remembered& remembered = PerThread<Remembered>::get();
    if (remembered.changes != now.changes.load(std::memory_order_acquire)) {
        const std::lock_guard lock(now.mutex);
        remembered = {now.changes.load(std::memory_order_relaxed), now.group.impl()};
    }
    return remembered.group;
}
int get_rank(ProcessGroup group) {
    return named_or_default(group, "get_rank").rank();
}
int get_world_size(ProcessGroup group) {
    return named_or_default(group, "get_world_size").size();
}
std::string get_backend(ProcessGroup group) {
    return named_or_default(group, "get_backend").backend();
}
bool is_torchelastic_launched() noexcept {
    return std::getenv("TORCHELASTIC_RUN_ID") != nullptr;
}

}  // namespace tutti
