// A backend's threads: their ends, and what escapes from them.
#pragma once

#include "shared/carrier.hpp"

#include <exception>
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

/// A carrier's thread: what escapes from it ends what waits for messages, and not the process.
template <class Body>
void carry(Receiver& receiver, Body body) noexcept {
    try {
        body();
    } catch (...) {
        receiver.lost(std::current_exception());
    }
}

}  // namespace tutti::backends
