// NoDescriptorsLeft: while it lives, this process can open nothing more.
#pragma once

#include "core/unique_fd.hpp"

#include <sys/resource.h>
#include <unistd.h>

namespace tutti::test {

class NoDescriptorsLeft {
 public:
    /// `open`: any descriptor that is open.
    explicit NoDescriptorsLeft(int open) {
        ::getrlimit(RLIMIT_NOFILE, &usual_);
        rlimit full = usual_;
        full.rlim_cur = static_cast<rlim_t>(UniqueFd(::dup(open)).get());  // the lowest that is free
        ::setrlimit(RLIMIT_NOFILE, &full);
    }
    ~NoDescriptorsLeft() { ::setrlimit(RLIMIT_NOFILE, &usual_); }
    NoDescriptorsLeft(const NoDescriptorsLeft&) = delete;
    NoDescriptorsLeft& operator=(const NoDescriptorsLeft&) = delete;

 private:
    rlimit usual_{};
};

}  // namespace tutti::test
