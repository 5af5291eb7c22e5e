#include "transport/shm/staging_copy.hpp"

#include "core/stream_copy.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tutti::transport {
namespace {

constexpr std::uint32_t copies_between_trials = 32;

template <class Copy>
void timed(double& ns, Copy copy, std::byte* to, const std::byte* from, std::size_t bytes) {
    const auto start = std::chrono::steady_clock::now();
    copy(to, from, bytes);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    const double now = took.count() / static_cast<double>(bytes);
    ns = ns == 0 ? now : (ns + std::min(now, 4 * ns)) / 2;  // a moment in which this rank did not run says nothing
}

}  // namespace

void StagingCopy::operator()(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::size_t done = 0;
    const bool large = bytes >= least_bytes_;
    if (large && until_trial_-- == 0) {
        until_trial_ = copies_between_trials;
        const std::size_t half = least_bytes_ / 2;
        timed(plain_ns_, std::memcpy, to, from, half);
        timed(stream_ns_, stream_copy, to + half, from + half, half);
        done = 2 * half;
    }
    if (done == bytes) return;  // of none, `from` may be null
    if (large && streams())
        stream_copy(to + done, from + done, bytes - done);
    else
        std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace tutti::transport
