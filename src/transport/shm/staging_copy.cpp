#include "transport/shm/staging_copy.hpp"

#include "core/stream_copy.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tutti::transport {
namespace {

// From trial to trial: twice as many after each that has changed nothing.
constexpr std::uint32_t fewest_copies = 32, most_copies = 256;
constexpr std::size_t tried_bytes_max = std::size_t{16} << 10;  // in each way

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
        // As much as is copied, if it can be: a store around the cache has fixed costs.
        const std::size_t half = std::min(bytes / 128 * 64, tried_bytes_max);
        const bool before = streams();
        timed(plain_ns_, std::memcpy, to, from, half);
        timed(stream_ns_, stream_copy, to + half, from + half, half);
        done = 2 * half;
        pause_ = streams() == before ? std::min(2 * pause_, most_copies) : fewest_copies;
        until_trial_ = pause_;
    }
    if (done == bytes) return;  // of none, `from` may be null
    if (large && streams())
        stream_copy(to + done, from + done, bytes - done);
    else
        std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace tutti::transport
