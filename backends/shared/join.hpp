// A backend's threads: their ends, and the exceptions that escape from them.
#pragma once

#include "shared/carrier.hpp"

#include <exception>
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

/// The body of a carrier's thread: an exception that escapes from it ends the waits for messages, not the process.
template <class Body>
void carry(Receiver& receiver, Body body) noexcept {
    try {
        body();
    } catch (...) {
        receiver.lost(std::current_exception());
    }
}

}  // namespace tutti::backends
