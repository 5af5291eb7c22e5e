// Acceptor: takes the connections that wait at a listening socket, on libuv. When the process may open no more
// descriptors it raises its soft limit; at the hard one it says so and tries again, while the clients wait.
//
// Threads: the loop's.
#pragma once

#include "core/unique_fd.hpp"

#include <uv.h>

#include <cstdint>
#include <functional>

namespace tutti::store {

class Acceptor {
 public:
    using Accept = std::function<void(UniqueFd)>;
    /// Begins to listen. Throws DistNetworkError. It has to be closed, and the loop to run, before it is destroyed.
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
