// Closes the descriptors noted here in every child that this process forks. Otherwise the child would keep a connection
// open after this process's death, and the peer would never notice the death.
//
// Threads: any. Call forget() before closing a descriptor.
#pragma once

#include "core/assert.hpp"
#include "core/unique_fd.hpp"

#include <utility>

namespace tutti::fork_guard {

void close_in_children(int fd);
void forget(int fd);
/// The number of forks that lead from the process that noted the first descriptor to this one: 0 there, one more in
/// each child.
unsigned generation() noexcept;

/// Owns a descriptor that forked children close. A child's copy of this object does not close it again: its number may
/// belong to another file by then.
class GuardedFd {
 public:
    GuardedFd() = default;
    explicit GuardedFd(UniqueFd fd) : fd_(std::move(fd)), generation_(generation()) {
        if (fd_) close_in_children(fd_.get());
    }
    GuardedFd(GuardedFd&&) noexcept = default;
    GuardedFd& operator=(GuardedFd&& other) noexcept {
        TUTTI_ASSERT(this != &other);
        reset();
        fd_ = std::move(other.fd_);
        generation_ = other.generation_;
        return *this;
    }
    ~GuardedFd() { reset(); }
    int get() const noexcept { return fd_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
    void reset() noexcept {
        if (!fd_) return;
        if (generation_ != generation()) return void(fd_.release());
        TUTTI_ASSERT(fd_.get() >= 0);
        forget(fd_.get());
        fd_.reset();
    }

 private:
    UniqueFd fd_;
    unsigned generation_ = 0;
};

}  // namespace tutti::fork_guard
