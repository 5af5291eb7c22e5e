#include "core/descriptors.hpp"

#include "core/assert.hpp"

#include <sys/resource.h>

#include <atomic>

namespace tutti::descriptors {
namespace {

std::atomic<std::uint64_t> before_raise{0};  // 0: nothing was raised

}  // namespace

bool raise() noexcept {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
    TUTTI_ASSERT(limit.rlim_cur < limit.rlim_max);
    std::uint64_t none = 0;
    before_raise.compare_exchange_strong(none, limit.rlim_cur);
    limit.rlim_cur = limit.rlim_max;
    return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

void give_back() noexcept {
    rlimit limit{};
    const std::uint64_t before = before_raise;
    if (before == 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = before;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

Limits limits() noexcept {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    TUTTI_ASSERT(limit.rlim_cur <= limit.rlim_max);
    return {limit.rlim_cur, limit.rlim_max};
}

}  // namespace tutti::descriptors
