// StagingCopy: how a rank copies into memory that others have just read.
//
// Writing lines that another core holds takes leave of that core for each of them: where the two share no cache, five
// to ten times as long as writing lines of one's own. Stores around the cache ask nobody, but whoever reads then finds
// the values in memory. Which of both is quicker depends on where the two cores lie, and in a virtual machine that
// changes while a program runs. So the ordinary way is timed now and then.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti::transport {

class StagingCopy {
 public:
    /// Always the ordinary way.
    StagingCopy() = default;
    /// Nanoseconds a byte that a reader takes longer to fetch what was stored around the cache.
    /// Fewer than `least_bytes` are copied the ordinary way.
    explicit StagingCopy(double penalty_ns, std::size_t least_bytes = std::size_t{32} << 10)
        : least_bytes_(least_bytes), penalty_ns_(penalty_ns) {}

    void operator()(std::byte* to, const std::byte* from, std::size_t bytes);
    /// Whether stores around the cache were quicker lately.
    bool streams() const noexcept { return stream_ns_ + penalty_ns_ < plain_ns_; }

 private:
    std::size_t least_bytes_ = ~std::size_t{0};
    double penalty_ns_ = 0;
    double plain_ns_ = 0, stream_ns_ = 0;  // a byte, lately
    std::uint32_t pause_ = 16;             // copies between the trials
    std::uint32_t until_trial_ = 0;        // copies
};

/// By `copy`; null: the ordinary way.
inline void copy_staged(StagingCopy* copy, std::byte* to, const std::byte* from, std::size_t bytes) {
    if (copy != nullptr)
        (*copy)(to, from, bytes);
    else if (bytes > 0)
        std::memcpy(to, from, bytes);
}

}  // namespace tutti::transport
