// The end of a backend's thread.
#pragma once

#include <thread>

namespace tutti::backends {

/// The thread that drops the last handle of a group ends its backend; it may be a thread of the backend that has just
/// completed an operation. Such a thread must keep alive the objects that it still touches.
inline void join(std::thread& thread) {
    if (!thread.joinable()) return;
    if (thread.get_id() == std::this_thread::get_id())
        thread.detach();
    else
        thread.join();
}

}  // namespace tutti::backends
