// LaneGrowth: how many lanes a stream has, and when one more would help.
//
// Threads: a value; one at a time.
#pragma once

#include "core/deadline.hpp"

#include <cstdint>
#include <functional>

namespace tutti::transport {

/// How many connections two ranks may have: as many as asked for, once bytes wait for one; or as many as help.
struct Lanes {
    int most = 1;
    bool as_needed = true;

    /// TUTTI_TCP_CONNECTIONS: auto (the default), or 1 to LaneGrowth::lanes_max. Throws InvalidArgument for any other.
    static Lanes from_environment();
};

/// What the kernel has counted for a stream's connections, all together.
struct LaneCounts {
    std::uint64_t busy_us = 0;     ///< in which bytes were under way
    std::uint64_t network_us = 0;  ///< of these: nothing but the network kept more of them back
    std::uint64_t bytes = 0;       ///< that the peer has acknowledged

    /// Adds those of one connection.
    void add(int fd);
};

class LaneGrowth {
 public:
    static constexpr int lanes_max = 16;

    explicit LaneGrowth(Lanes lanes) : lanes_(lanes) {}

    /// Bytes wait, at `now`, although there are `lanes` connections: whether to make another. `counts` is asked now and
    /// then.
    bool wants(int lanes, Instant now, const std::function<LaneCounts()>& counts);

 private:
    Lanes lanes_;
    int target_ = 1;
    int vain_ = 0;       // rounds of growth in a row that brought nothing
    bool fresh_ = true;  // the last lanes have to find their pace
    Instant next_look_{};
    LaneCounts before_;
    int lanes_before_ = 0;
    double rate_before_ = 0;  // bytes a microsecond, with half as many
};

}  // namespace tutti::transport
