// NoDescriptorsLeft: while it lives, this process can open nothing more.
#pragma once

#include "core/unique_fd.hpp"

#include <sys/resource.h>
#include <unistd.h>

namespace tutti::test {

/// The undefined-behaviour sanitizer opens a pipe to find out the type of an object; where it cannot, it reports faults
/// that are none. Tests that leave it no descriptor are skipped with that reason.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitizer_needs_descriptors = true;
#else
inline constexpr bool sanitizer_needs_descriptors = false;
#endif
inline constexpr const char* for_sanitizer =
    "by design: the undefined-behaviour sanitizer needs descriptors for its own checks";

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
