// join(): waits for a thread; one that has come to its own end by itself is left to itself.
#pragma once

#include <thread>

namespace tutti::backends {

/// Whoever drops the last handle of a group ends its backend, and that may be a thread of the backend, which has just
/// completed an operation. Such a thread must keep alive what it still touches.
inline void join(std::thread& thread) {
    if (!thread.joinable()) return;
    if (thread.get_id() == std::this_thread::get_id())
        thread.detach();
    else
        thread.join();
}

}  // namespace tutti::backends
