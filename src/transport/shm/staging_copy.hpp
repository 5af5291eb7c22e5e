// StagingCopy: how a rank copies into memory that others have just read.
//
// A write to a line that another core holds has to get it from that core: where the two share no cache, that takes five
// to ten times as long as writing lines of one's own. Stores around the cache (non-temporal) skip that, but the reader
// then finds the values in memory. Where the two cores lie decides which way is quicker, and in a virtual machine that
// changes while a program runs. So a rank times both ways now and then.
//
// The time of a way depends on how the lines were written before: past the cache, they are in memory, and the first
// ordinary store there has to fetch them. So where a rank writes one place again and again, it always writes its
// beginning the one way, and the rest the other way.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti::transport {

class StagingCopy {
 public:
    /// Always the ordinary way.
    StagingCopy() = default;
    /// `penalty_ns`: nanoseconds per byte that a reader takes longer to fetch bytes stored around the cache.
    /// Fewer than `least_bytes` go the ordinary way.
    /// `returning`: the fraction of its measured time that the ordinary way is expected to take once it is in use.
    explicit StagingCopy(double penalty_ns, std::size_t least_bytes = std::size_t{32} << 10, double returning = 1)
        : least_bytes_(least_bytes), penalty_ns_(penalty_ns), returning_(returning) {
        TUTTI_ASSERT(least_bytes >= 256);  // a trial needs some lines in each way
        TUTTI_ASSERT(returning > 0 && returning <= 1);
    }

    /// Which copies try both ways.
    enum class Trial : std::uint8_t {
        now_and_then,  ///< some, wherever they write
        here,          ///< each one, at this one place
        elsewhere,     ///< not this one: trials are elsewhere
    };
    void operator()(std::byte* to, const std::byte* from, std::size_t bytes, Trial trial = Trial::now_and_then);
    /// Whether stores around the cache were quicker lately.
    bool streams() const noexcept { return streams_; }

 private:
    std::size_t try_both(std::byte* to, const std::byte* from, std::size_t bytes);
    void decide();
    void copy_best(std::byte* to, const std::byte* from, std::size_t bytes, bool large) const;

    std::size_t least_bytes_ = ~std::size_t{0};
    double penalty_ns_ = 0, returning_ = 1;
    double plain_ns_ = 0, stream_ns_ = 0;  // a byte, lately
    std::uint32_t pause_ = 16;             // copies between the trials
    std::uint32_t until_trial_ = 0;        // copies
    std::uint32_t in_vain_ = 0;            // returns to the ordinary way that did not last
    bool streams_ = false;
};

/// By `copy`; null: the ordinary way.
inline void copy_staged(StagingCopy* copy, std::byte* to, const std::byte* from, std::size_t bytes,
                        StagingCopy::Trial trial = StagingCopy::Trial::now_and_then) {
    TUTTI_ASSERT(bytes == 0 || (to != nullptr && from != nullptr));
    if (copy != nullptr)
        (*copy)(to, from, bytes, trial);
    else if (bytes > 0)  // of none, `from` may be null
        std::memcpy(to, from, bytes);
}

}  // namespace tutti::transport
