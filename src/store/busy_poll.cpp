#include "store/busy_poll.hpp"

#include "core/assert.hpp"

#include <utility>

namespace tutti::store {
namespace {

/// Longer than a client takes to ask again.
constexpr std::uint64_t look_ns = 30'000;

}  // namespace

void BusyPoll::open(uv_loop_t& loop) {
    TUTTI_ASSERT(idle_.data == nullptr);
    uv_idle_init(&loop, &idle_);  // which cannot fail
    idle_.data = this;
}

void BusyPoll::close() {
    auto* const handle = reinterpret_cast<uv_handle_t*>(&idle_);
    if (idle_.data != nullptr && !uv_is_closing(handle)) uv_close(handle, nullptr);
}

void BusyPoll::heard(std::uint64_t& window) {
    const std::uint64_t now = uv_hrtime();
    TUTTI_ASSERT(idle_.data == this);
    crowd_.heard(now, window);
    if (looking_) policy_.note(true);
    if (crowd_.size() >= cores_) return stop();
    if (!looking_ && !policy_.worth_it()) return;
    until_ns_ = now + look_ns;
    TUTTI_ASSERT(crowd_.size() < cores_);
    if (std::exchange(looking_, true)) return;
    uv_idle_start(&idle_, [](uv_idle_t* handle) { static_cast<BusyPoll*>(handle->data)->look(); });
}

void BusyPoll::stop() {
    if (std::exchange(looking_, false)) uv_idle_stop(&idle_);
}

void BusyPoll::look() {
    TUTTI_ASSERT(looking_);
    if (uv_hrtime() < until_ns_) return;
    policy_.note(false);
    stop();
}

}  // namespace tutti::store
