// LaneGrowth: on how many lanes a stream writes, and when it should add one.
//
// While the network holds bytes back, a stream tries twice as many lanes. It keeps them only if it is faster with them
// than both before and after the trial: an ordinary machine may double its speed meanwhile for other reasons. It stops
// writing on lanes that brought no gain, since each lane costs CPU time, which matters if the ranks are the bottleneck.
// A rank that is busy copying to and from its sockets makes no trial: bytes then wait for the rank, which could be
// mistaken for a slow network.
//
// Threads: a value; one at a time.
#pragma once

#include "core/assert.hpp"
#include "core/deadline.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace tutti::transport {

/// How many connections two ranks may have: a fixed number, opened when bytes first have to wait; or (auto) as many as
/// raise the speed.
struct Lanes {
    int most = 1;
    bool as_needed = true;

    /// TUTTI_TCP_CONNECTIONS: auto (the default), or 1 to LaneGrowth::lanes_max. Throws InvalidArgument for any other.
    static Lanes from_environment();
};

/// The kernel's counters for one connection.
struct LaneCounts {
    std::uint64_t busy_us = 0;     ///< time in which bytes were under way
    std::uint64_t network_us = 0;  ///< part of busy_us in which only the network held bytes back
    std::uint64_t bytes = 0;       ///< acknowledged by the peer

    static LaneCounts of(int fd);
};

/// The counters of a whole stream.
struct StreamCounts {
    std::vector<LaneCounts> lanes;
    std::uint64_t moving_us = 0;  ///< time in which this rank copied bytes between its memory and its sockets, to any
                                  ///< rank
};

class LaneGrowth {
 public:
    static constexpr int lanes_max = 16;

    explicit LaneGrowth(Lanes lanes) : lanes_(lanes) { TUTTI_ASSERT(lanes.most >= 1 && lanes.most <= lanes_max); }

    /// On how many lanes this rank wants to write.
    int wanted() const noexcept { return lanes_.as_needed ? target_ : lanes_.most; }
    /// On how many of the stream's `lanes` connections to write (the first ones), if the peer wants to write on
    /// `peer_wants`. Both ranks use the same number: often the bytes of one direction wait for those of the other, and
    /// a rank that adds lanes alone would see no gain.
    int in_use(int lanes, int peer_wants) const noexcept;
    /// The stream has written many bytes, at `now`, on some of `lanes` connections: returns whether to add one.
    /// `counted` fills in the counters; it is called now and then.
    bool wants(int lanes, int peer_wants, Instant now, const std::function<void(StreamCounts&)>& counted);

 private:
    /// The current measurement. A trial that shows a gain is followed by `back`: a return to the previous number of
    /// lanes.
    enum class Turn : std::uint8_t { usual, trial, back };
    void next(double rate, bool network_bound);
    void go_to(int lanes, Turn turn);
    void look();
    void start();

    Lanes lanes_;
    Turn turn_ = Turn::usual;
    int target_ = 1;
    int best_ = 1;                           // the largest number of lanes with a proven gain
    int tried_ = 1;                          // lanes in the last trial
    int vain_ = 0;                           // trials in a row without a gain
    bool ended_ = false;                     // there will be no more trials
    double best_rate_ = 0, tried_rate_ = 0;  // bytes per microsecond

    Instant next_look_{};
    StreamCounts before_, counts_;
    int measured_ = 0;   // the number of lanes to which these counts apply
    bool fresh_ = true;  // the lanes still have to reach their speed
    std::uint64_t bytes_ = 0;
    double busy_us_ = 0;                               // time in which at least one lane was busy
    double lanes_busy_us_ = 0, lanes_network_us_ = 0;  // sums over all lanes
    double moving_us_ = 0;
};

}  // namespace tutti::transport
