#include "transport/shm/staging_copy.hpp"

#include "core/assert.hpp"
#include "core/stream_copy.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tutti::transport {
namespace {

// From trial to trial: twice as many after each that has changed nothing.
constexpr std::uint32_t fewest_copies = 32, most_copies = 256;
// Copies until all of a ring has been written the ordinary way; how often the pause doubles while that is in vain.
constexpr std::uint32_t copies_to_return = 256, in_vain_max = 8;
constexpr std::size_t tried_bytes_max = std::size_t{16} << 10;  // in each way

template <class Copy>
void timed(double& ns, Copy copy, std::byte* to, const std::byte* from, std::size_t bytes) {
    TUTTI_ASSERT(bytes > 0);
    const auto start = std::chrono::steady_clock::now();
    copy(to, from, bytes);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    const double now = took.count() / static_cast<double>(bytes);
    ns = ns == 0 ? now : (ns + std::min(now, 4 * ns)) / 2;  // a stretch in which this rank did not run tells nothing
}

}  // namespace

// Tries either way on as many bytes as a copy has, if possible: a store around the cache has fixed costs. Returns the
// bytes copied.
std::size_t StagingCopy::try_both(std::byte* to, const std::byte* from, std::size_t bytes) {
    TUTTI_ASSERT(to != nullptr && from != nullptr);
    TUTTI_ASSERT(bytes <= tried_bytes_max);
    timed(plain_ns_, std::memcpy, to, from, bytes);
    timed(stream_ns_, stream_copy, to + bytes, from + bytes, bytes);
    return 2 * bytes;
}

// Decides on the way to use until the next trial, and when that is.
void StagingCopy::decide() {
    TUTTI_ASSERT(pause_ > 0);
    TUTTI_ASSERT(in_vain_ <= in_vain_max);
    const bool before = streams_;
    streams_ = stream_ns_ + penalty_ns_ < plain_ns_ * (before ? returning_ : 1);
    if (streams_ == before) {
        if (!streams_) in_vain_ = 0;
        pause_ = std::min(2 * pause_, std::max(most_copies, fewest_copies << in_vain_));
    } else if (streams_) {
        if (returning_ < 1) in_vain_ = std::min(in_vain_ + 1, in_vain_max);
        pause_ = fewest_copies << in_vain_;
    } else if (returning_ < 1) {
        plain_ns_ = 0;  // now it will show its real time
        pause_ = copies_to_return;
    } else {
        pause_ = fewest_copies;
    }
}

void StagingCopy::copy_best(std::byte* to, const std::byte* from, std::size_t bytes, bool large) const {
    if (bytes == 0) return;  // of none, `from` may be null
    if (large && streams())
        stream_copy(to, from, bytes);
    else
        std::memcpy(to, from, bytes);
}

void StagingCopy::operator()(std::byte* to, const std::byte* from, std::size_t bytes, Trial trial) {
    TUTTI_ASSERT(bytes == 0 || (to != nullptr && from != nullptr));
    const bool large = bytes >= least_bytes_;
    std::size_t done = 0;
    if (large && trial == Trial::here) {
        done = try_both(to, from, std::min(bytes / 256 * 64, tried_bytes_max));
        streams_ = stream_ns_ + penalty_ns_ < plain_ns_;
    } else if (large && trial == Trial::now_and_then && until_trial_-- == 0) {
        done = try_both(to, from, std::min(bytes / 128 * 64, tried_bytes_max));
        decide();
        until_trial_ = pause_;
    }
    TUTTI_ASSERT(done <= bytes);
    copy_best(to + done, from + done, bytes - done, large);
}

}  // namespace tutti::transport
