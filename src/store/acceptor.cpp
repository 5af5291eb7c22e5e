#include "store/acceptor.hpp"

#include "core/assert.hpp"
#include "core/descriptors.hpp"
#include "core/fork_guard.hpp"
#include "core/log.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::store {
namespace {

/// As many as the system allows (net.core.somaxconn): all ranks of a host come at once.
constexpr int backlog = 4096;
constexpr int turn = 64;  // connections, before the loop serves the present ones
constexpr std::uint64_t pause_ms = 100;
constexpr std::uint64_t say_after_max_ms = 600'000;

void expect_good(int result, const char* what) {
    if (result != 0) throw DistNetworkError(fmt::format("TCPStore server: {}: {}", what, uv_strerror(result)));
}

Acceptor& self(void* data) {
    TUTTI_ASSERT(data != nullptr);
    return *static_cast<Acceptor*>(data);
}

}  // namespace

void Acceptor::open(uv_loop_t& loop, UniqueFd listener, Accept accept) {
    TUTTI_ASSERT(listener && accept != nullptr && !listener_);
    if (::listen(listener.get(), backlog) != 0) expect_good(uv_translate_sys_error(errno), "cannot listen");
    listener_ = std::move(listener);
    accept_ = std::move(accept);
    fork_guard::close_in_children(listener_.get());
    expect_good(uv_timer_init(&loop, &again_), "timer");
    again_.data = this;
    expect_good(uv_poll_init(&loop, &poll_, listener_.get()), "cannot use the listening socket");
    poll_.data = this;
    listen();
}

void Acceptor::listen() {
    TUTTI_ASSERT(listener_ && poll_.data == this);
    uv_poll_start(&poll_, UV_READABLE, [](uv_poll_t* handle, int, int) { self(handle->data).accept_all(); });
}

void Acceptor::accept_all() {
    for (int i = 0; i < turn; ++i) {
        TUTTI_ASSERT(listener_.get() >= 0);
        UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (connection) {
            say_after_ms_ = 5'000;
            accept_(std::move(connection));
            continue;
        }
        const int error = errno;
        if (error == EAGAIN || error == EWOULDBLOCK) return;
        // The connection died before it was accepted; accept(2) says to go on.
        if (error == EINTR || error == ECONNABORTED || error == EPROTO) continue;
        if (error == EMFILE && descriptors::raise()) continue;
        return pause(error);
    }
}

// The clients wait in the socket's queue. Logs it ever more seldom, so that a log stays readable.
void Acceptor::pause(int error) {
    TUTTI_ASSERT(error != 0);
    uv_poll_stop(&poll_);
    uv_timer_start(
        &again_, [](uv_timer_t* handle) { self(handle->data).listen(); }, pause_ms, 0);
    const std::uint64_t now = uv_now(poll_.loop);
    if (now < say_at_ms_) return;
    say_at_ms_ = now + say_after_ms_;
    say_after_ms_ = std::min(2 * say_after_ms_, say_after_max_ms);
    TUTTI_ASSERT(say_at_ms_ > now && say_after_ms_ <= say_after_max_ms);
    if (error != EMFILE) {
        TUTTI_WARN("TCPStore server: cannot accept a connection: {}; the client waits", std::strerror(error));
        return;
    }
    TUTTI_WARN(
        "TCPStore server: {} files are open, and this process may open no more, so that further clients wait: it needs "
        "two for each rank. Raise the hard limit (ulimit -Hn, LimitNOFILE= of systemd, limits.conf), or start fewer "
        "ranks",
        descriptors::limits().soft);
}

void Acceptor::close() {
    if (listener_) fork_guard::forget(listener_.get());
    for (uv_handle_t* handle : {reinterpret_cast<uv_handle_t*>(&poll_), reinterpret_cast<uv_handle_t*>(&again_)}) {
        if (handle->data != nullptr && uv_is_closing(handle) == 0) uv_close(handle, nullptr);
    }
    listener_.reset();
    TUTTI_ASSERT(!listener_);
}

}  // namespace tutti::store
