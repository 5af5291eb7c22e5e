#include "store/pending_connections.hpp"

#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace tutti::store {

std::size_t PendingConnections::most_of_process() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
    return std::clamp<std::size_t>(limit.rlim_cur / 4, 8, 1024);
}

PendingConnections::PendingConnections(std::size_t most, std::chrono::milliseconds time_to_prove)
    : most_(most), time_to_prove_ms_(static_cast<std::uint64_t>(time_to_prove.count())) {
    TUTTI_ASSERT(most > 0 && time_to_prove.count() > 0);
}

void PendingConnections::open(uv_loop_t& loop, Drop drop) {
    TUTTI_ASSERT(drop != nullptr && sweep_.data == nullptr);
    drop_ = std::move(drop);
    if (const int result = uv_timer_init(&loop, &sweep_); result != 0)
        throw DistNetworkError(fmt::format("TCPStore server: timer: {}", uv_strerror(result)));
    sweep_.data = this;
}

void PendingConnections::close() {
    auto* const handle = reinterpret_cast<uv_handle_t*>(&sweep_);
    if (sweep_.data != nullptr && !uv_is_closing(handle)) uv_close(handle, nullptr);
}

void PendingConnections::add(ServerConnection& connection) {
    TUTTI_ASSERT(sweep_.data == this);
    waiting_.push_back({&connection, uv_now(sweep_.loop) + time_to_prove_ms_});
    if (waiting_.size() > most_) drop_(*waiting_.front().connection);
    TUTTI_ASSERT(waiting_.size() <= most_);
    if (!is_sweeping_) schedule_sweep();
}

void PendingConnections::remove(const ServerConnection& connection) {
    std::erase_if(waiting_, [&](const Stranger& stranger) { return stranger.connection == &connection; });
}

void PendingConnections::schedule_sweep() {
    is_sweeping_ = !waiting_.empty();
    if (!is_sweeping_) return;
    const std::uint64_t due = waiting_.front().due_ms, now = uv_now(sweep_.loop);
    uv_timer_start(
        &sweep_, [](uv_timer_t* handle) { static_cast<PendingConnections*>(handle->data)->drop_silent(); },
        due > now ? due - now : 1, 0);
}

void PendingConnections::drop_silent() {
    while (!waiting_.empty() && waiting_.front().due_ms <= uv_now(sweep_.loop)) {
        TUTTI_ASSERT(waiting_.front().connection != nullptr);
        drop_(*waiting_.front().connection);
    }
    schedule_sweep();
}

}  // namespace tutti::store
