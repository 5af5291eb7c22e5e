// A connection that a forked child inherits stays open after its owner died, and the other end never learns of the
// death. Every child that this process forks closes the descriptors noted here.
//
// Threads: any. Forget a descriptor before closing it.
#pragma once

#include "core/assert.hpp"
#include "core/unique_fd.hpp"

#include <utility>

namespace tutti::fork_guard {

void close_in_children(int fd);
void forget(int fd);
/// How often this process and its ancestors were forked since the first descriptor was noted: differs in a child.
unsigned generation() noexcept;

/// Owns a descriptor that no child keeps. In a child it owns nothing: the number may be another file's by then.
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
