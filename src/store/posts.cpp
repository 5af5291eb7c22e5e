#include "store/posts.hpp"

#include "core/assert.hpp"
#include "core/socket.hpp"
#include "core/unix_socket.hpp"
#include "store/wire.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <span>

namespace tutti::store {
namespace {

using namespace std::chrono_literals;

/// Without hearing from the server.
constexpr auto time_max = 50ms;
constexpr int posts_max = 256;

}  // namespace

Posts::Moment Posts::coarse_now() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

bool Posts::may_go(Moment now) const noexcept {
    TUTTI_ASSERT(since_heard_.load(std::memory_order_relaxed) >= 0);
    return since_heard_.load(std::memory_order_relaxed) < posts_max &&
           now - Moment(heard_at_ns_.load(std::memory_order_relaxed)) < time_max;
}

void Posts::heard(Moment now) noexcept {
    heard_at_ns_.store(now.count(), std::memory_order_relaxed);
    since_heard_.store(0, std::memory_order_relaxed);
}

void Posts::open_pipe(int door, const Deadline& limit) {
    TUTTI_ASSERT(door >= 0 && !pipe_);
    const auto raw = encode({Op::post_pipe, 0, 0});
    net::send_all(door, std::as_bytes(std::span(raw)), limit, nullptr, "connect");
    const UniqueFd end = net::recv_fd(door, limit, nullptr);
    // Opened to be read as well, so that writing to it never raises SIGPIPE.
    const auto path = fmt::format("/proc/self/fd/{}", end.get());
    pipe_ = fork_guard::GuardedFd(UniqueFd(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC)));
}

bool Posts::pipe_takes(std::uint64_t bytes) const noexcept {
    return bytes <= PIPE_BUF && answered_ >= given_up_;
}

// All or nothing, up to PIPE_BUF.
bool Posts::write(std::string_view post) noexcept {
    TUTTI_ASSERT(pipe_ && post.size() <= PIPE_BUF);
    const ssize_t sent = ::write(pipe_.get(), post.data(), post.size());
    if (sent < 0) return false;
    TUTTI_ASSERT(static_cast<std::size_t>(sent) == post.size());
    ++written_;
    count();
    return true;
}

}  // namespace tutti::store
