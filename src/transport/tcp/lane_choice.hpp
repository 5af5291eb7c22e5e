// Which of a stream's lanes carries its next chunk: the one over which the chunk would arrive first, so that each
// lane's share follows its speed.
//
// By bytes alone a slow lane has as many under way as a quick one, for so much longer: the reader, which needs chunks
// in their order, waits for them, and a rank that keeps a limited number of bytes under way (a pipeline's pieces)
// leaves the quick lanes idle meanwhile. Source: the earliest arrival of ECF for Multipath TCP (Lim, Nahum, Towsley and
// Gibbens, CoNEXT 2017), with the rate that a lane's acknowledgements show, since its round trip tells of its queue.
// Unlike ECF no chunk waits for a quicker lane that takes nothing now: with a low threshold that cost 40 % where lanes
// share links, and with a high one it gained 7 % on two unequal links.
//
// Threads: values; one at a time.
#pragma once

#include "core/deadline.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tutti::transport {

/// How many bytes a microsecond the network takes from a lane.
class LanePace {
 public:
    static constexpr std::chrono::milliseconds between_looks{8};

    /// `acknowledged`: bytes so far, by the peer's kernel; `under_way`: those that it has not acknowledged. Only a
    /// stretch at both ends of which bytes were under way tells of the network, and not if the rank was elsewhere for
    /// long. The rank may have been slower than the network within it, so a rise counts more than a fall.
    void look(Instant now, std::uint64_t acknowledged, std::size_t under_way) noexcept;
    /// 0: not known yet.
    double rate() const noexcept { return rate_; }

 private:
    Instant before_{};
    std::uint64_t acknowledged_ = 0;
    bool busy_ = false;
    double rate_ = 0;
};

struct LaneLoad {
    bool takes = false;         ///< a chunk, now
    std::size_t under_way = 0;  ///< bytes that the peer's kernel has not acknowledged; of a lane that takes the chunk
    double rate = 0;            ///< of its LanePace
};

/// For a chunk of `bytes`; none: no lane takes it now. Lanes of unknown rate count as quick as the quickest, so that
/// they are tried.
std::optional<std::size_t> choose_lane(std::span<const LaneLoad> lanes, std::size_t bytes) noexcept;

}  // namespace tutti::transport
