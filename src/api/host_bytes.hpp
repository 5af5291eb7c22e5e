// HostBytes: collectives of tutti's own on a group's ranks, as of objects, or of what the ranks have to agree about.
#pragma once

#include <utility>

namespace tutti::api {

/// While it lives, what this thread prepares carries bytes in host memory between the ranks of a group, whatever the
/// group's backends serve: the backend of host memory does it, or tutti itself where there is none.
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
