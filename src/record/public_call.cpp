#include "record/public_call.hpp"

#include "core/assert.hpp"

#include <exception>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace tutti::record {
namespace {

struct Registered {
    std::uint64_t id;
    Hooks hooks;
};
struct Register {
    std::shared_mutex mutex;  // shared: while hooks run
    std::vector<Registered> all;
    std::uint64_t last_id = 0;
};
Register& hooks_register() {
    static Register* const instance = new Register;  // scopes may outlive static objects
    return *instance;
}

}  // namespace

std::uint64_t add_hooks(Hooks hooks) {
    Register& r = hooks_register();
    const std::unique_lock lock(r.mutex);
    r.all.push_back({++r.last_id, std::move(hooks)});
    hooks_wanted.store(true, std::memory_order_relaxed);
    TUTTI_ASSERT(r.all.back().id == r.last_id);
    return r.last_id;
}

void remove_hooks(std::uint64_t id) {
    Register& r = hooks_register();
    const std::unique_lock lock(r.mutex);
    TUTTI_ASSERT(id > 0 && id <= r.last_id);
    std::erase_if(r.all, [id](const Registered& entry) { return entry.id == id; });
    hooks_wanted.store(!r.all.empty(), std::memory_order_relaxed);
}

// A hook's own calls are not the outermost, so they have no hooks: a thread takes the lock once.
void PublicCall::begin() noexcept {
    Register& r = hooks_register();
    const std::shared_lock lock(r.mutex);
    TUTTI_ASSERT(site_.outermost() && latest_hooks_ == 0 && name_ != nullptr);
    exceptions_ = std::uncaught_exceptions();
    latest_hooks_ = r.last_id;
    for (const Registered& entry : r.all) {
        if (entry.hooks.before) entry.hooks.before(name_);
    }
}

void PublicCall::end() noexcept {
    Register& r = hooks_register();
    const std::shared_lock lock(r.mutex);
    TUTTI_ASSERT(latest_hooks_ <= r.last_id);
    const bool failed = std::uncaught_exceptions() > exceptions_;
    for (auto entry = r.all.rbegin(); entry != r.all.rend(); ++entry) {
        if (entry->id <= latest_hooks_ && entry->hooks.after) entry->hooks.after(name_, failed);
    }
}

}  // namespace tutti::record
