// HostBytes: marks collectives that tutti runs for its own purposes, such as those that carry objects or agreements.
#pragma once

#include <utility>

namespace tutti::api {

/// A scope in which the operations that this thread prepares carry bytes in host memory, whichever devices the group's
/// backends serve: the backend for host memory runs them, or tutti itself if there is none.
class HostBytes {
 public:
    HostBytes() : before_(std::exchange(meant_, true)) {}
    ~HostBytes() { meant_ = before_; }
    HostBytes(const HostBytes&) = delete;
    HostBytes& operator=(const HostBytes&) = delete;

    static bool are_meant() noexcept { return meant_; }

 private:
    static inline thread_local bool meant_ = false;
    bool before_;
};

}  // namespace tutti::api
