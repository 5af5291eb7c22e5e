// UniqueFd: owns one file descriptor.
#pragma once

#include "core/assert.hpp"

#include <unistd.h>

#include <utility>

namespace tutti {

class UniqueFd {
 public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) noexcept : fd_(fd) { TUTTI_ASSERT(fd >= -1); }
    UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        reset(other.release());
        return *this;
    }
    ~UniqueFd() { reset(); }

    int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }
    int release() noexcept { return std::exchange(fd_, -1); }
    void reset(int fd = -1) noexcept {
        TUTTI_ASSERT(fd < 0 || fd != fd_);
        if (fd_ >= 0) ::close(fd_);
        fd_ = fd;
    }

 private:
    int fd_ = -1;
};

}  // namespace tutti
