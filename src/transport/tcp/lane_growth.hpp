// LaneGrowth: how many lanes a stream writes on, and when another one would help.
//
// A stream tries twice as many when the network keeps bytes back. They have to be quicker than the stream was before
// the trial and after it: an ordinary machine may become twice as fast meanwhile for reasons of its own. A stream no
// longer writes on lanes that brought nothing, since each lane costs the ranks time where the ranks are the slow part.
// A rank that is busy copying to and from its sockets does not try: bytes wait for it as they would for a slow network.
//
// Threads: a value; one at a time.
#pragma once

#include "core/assert.hpp"
#include "core/deadline.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace tutti::transport {

/// How many connections two ranks may have: as many as asked for, once bytes wait for one; or as many as help.
struct Lanes {
    int most = 1;
    bool as_needed = true;

    /// TUTTI_TCP_CONNECTIONS: auto (the default), or 1 to LaneGrowth::lanes_max. Throws InvalidArgument for any other.
    static Lanes from_environment();
};

/// The kernel's counters of a connection.
struct LaneCounts {
    std::uint64_t busy_us = 0;     ///< in which bytes were under way
    std::uint64_t network_us = 0;  ///< of these: nothing but the network kept more of them back
    std::uint64_t bytes = 0;       ///< that the peer has acknowledged

    static LaneCounts of(int fd);
};

/// The same for a whole stream.
struct StreamCounts {
    std::vector<LaneCounts> lanes;
    std::uint64_t moving_us = 0;  ///< in which this rank moved bytes between its memory and any of its sockets
};

class LaneGrowth {
 public:
    static constexpr int lanes_max = 16;

    explicit LaneGrowth(Lanes lanes) : lanes_(lanes) { TUTTI_ASSERT(lanes.most >= 1 && lanes.most <= lanes_max); }

    /// On how many lanes this rank wants to write.
    int wanted() const noexcept { return lanes_.as_needed ? target_ : lanes_.most; }
    /// On how many of `lanes` connections to write, the first ones, where the peer wants to write on `peer_wants`. Both
    /// use as many: often the bytes of one direction wait for those of the other, and one rank alone would find no
    /// gain.
    int in_use(int lanes, int peer_wants) const noexcept;
    /// The stream has written many bytes, at `now`, on some of `lanes` connections: whether to make another. `counted`
    /// fills in the counters; called now and then.
    bool wants(int lanes, int peer_wants, Instant now, const std::function<void(StreamCounts&)>& counted);

 private:
    /// The current measurement. After a trial that seems to bring something comes a return to as many lanes as before.
    enum class Turn : std::uint8_t { usual, trial, back };
    void next(double rate, bool network_bound);
    void go_to(int lanes, Turn turn);
    void look();
    void start();

    Lanes lanes_;
    Turn turn_ = Turn::usual;
    int target_ = 1;
    int best_ = 1;                           // has proved its worth
    int tried_ = 1;                          // in the last trial
    int vain_ = 0;                           // trials in a row that brought nothing
    bool ended_ = false;                     // there is nothing to try any more
    double best_rate_ = 0, tried_rate_ = 0;  // bytes a microsecond

    Instant next_look_{};
    StreamCounts before_, counts_;
    int measured_ = 0;   // lanes on which these were counted
    bool fresh_ = true;  // they have to find their pace
    std::uint64_t bytes_ = 0;
    double busy_us_ = 0;                               // in which any lane was
    double lanes_busy_us_ = 0, lanes_network_us_ = 0;  // of all lanes together
    double moving_us_ = 0;
};

}  // namespace tutti::transport
