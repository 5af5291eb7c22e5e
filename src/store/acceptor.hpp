// Acceptor: accepts the connections that wait at a listening socket, on libuv. When the process may open no more
// descriptors, it raises the soft limit; at the hard limit it logs this and retries, while the clients wait.
//
// Threads: the loop's thread.
#pragma once

#include "core/unique_fd.hpp"

#include <uv.h>

#include <cstdint>
#include <functional>

namespace tutti::store {

class Acceptor {
 public:
    using Accept = std::function<void(UniqueFd)>;
    /// Begins to listen. Throws DistNetworkError. Before the Acceptor is destroyed, call close() and run the loop.
    void open(uv_loop_t& loop, UniqueFd listener, Accept accept);
    void close();

 private:
    void listen();
    void accept_all();
    void pause(int error);

    UniqueFd listener_;
    Accept accept_;
    uv_poll_t poll_{};
    uv_timer_t again_{};
    std::uint64_t say_at_ms_ = 0, say_after_ms_ = 5'000;
};

}  // namespace tutti::store
