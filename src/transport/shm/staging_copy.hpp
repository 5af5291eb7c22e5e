// StagingCopy: copies into memory that other ranks have just read, in the quicker of two ways.
//
// To write a cache line that another core holds, a core must first fetch it from that core: if the two share no cache,
// this takes five to ten times as long as writing a line that the core itself holds. Stores around the cache
// (non-temporal) avoid that, but the reader then has to fetch the values from memory. Which way is quicker depends on
// where the two cores are, and in a virtual machine that changes while a program runs. So a rank times both ways now
// and then.
//
// The time of a store depends on how the line was written before: after a store around the cache it is in memory, and
// the first ordinary store has to fetch it. So a rank that tries both ways at one place again and again always writes
// the beginning in one way and the rest in the other.
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
    /// Always copies with ordinary stores.
    StagingCopy() = default;
    /// `penalty_ns`: nanoseconds per byte that a reader takes longer to fetch bytes stored around the cache.
    /// `least_bytes`: shorter copies use ordinary stores. `returning`: the fraction of their measured time that
    /// ordinary stores are expected to take once they are in use.
    explicit StagingCopy(double penalty_ns, std::size_t least_bytes = std::size_t{32} << 10, double returning = 1)
        : least_bytes_(least_bytes), penalty_ns_(penalty_ns), returning_(returning) {
        TUTTI_ASSERT(least_bytes >= 256);  // a trial needs some lines in each way
        TUTTI_ASSERT(returning > 0 && returning <= 1);
    }

    /// When copies are trials. A trial times both ways.
    enum class Trial : std::uint8_t {
        now_and_then,  ///< some copies, at any place
        here,          ///< every copy; all are at this one place
        elsewhere,     ///< not this copy: trials are made elsewhere
    };
    void operator()(std::byte* to, const std::byte* from, std::size_t bytes, Trial trial = Trial::now_and_then);
    /// Whether large copies now use stores around the cache.
    bool streams() const noexcept { return streams_; }

 private:
    std::size_t try_both(std::byte* to, const std::byte* from, std::size_t bytes);
    void decide();
    void copy_best(std::byte* to, const std::byte* from, std::size_t bytes, bool large) const;

    std::size_t least_bytes_ = ~std::size_t{0};
    double penalty_ns_ = 0, returning_ = 1;
    double plain_ns_ = 0, stream_ns_ = 0;  // recent times per byte
    std::uint32_t pause_ = 16;             // copies between two trials
    std::uint32_t until_trial_ = 0;        // copies until the next trial
    std::uint32_t in_vain_ = 0;            // returns to ordinary stores that did not last
    bool streams_ = false;
};

/// Copies with `copy`; null: with ordinary stores.
inline void copy_staged(StagingCopy* copy, std::byte* to, const std::byte* from, std::size_t bytes,
                        StagingCopy::Trial trial = StagingCopy::Trial::now_and_then) {
    TUTTI_ASSERT(bytes == 0 || (to != nullptr && from != nullptr));
    if (copy != nullptr)
        (*copy)(to, from, bytes, trial);
    else if (bytes > 0)  // if bytes is 0, `from` may be null
        std::memcpy(to, from, bytes);
}

}  // namespace tutti::transport
