// Closes the descriptors noted here in every child that this process forks. Otherwise a child would keep an inherited
// connection open after its owner's death, and the peer would never notice the death.
//
// Threads: any. Forget a descriptor before closing it.
#pragma once

#include "core/assert.hpp"
#include "core/unique_fd.hpp"

#include <utility>

namespace tutti::fork_guard {

void close_in_children(int fd);
void forget(int fd);
/// The number of forks between this process and the ancestor that noted the first descriptor: differs in a child.
unsigned generation() noexcept;

/// Owns a descriptor that forked children close. In a child it does not close the descriptor's number, which may be
/// another file's by then.
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
