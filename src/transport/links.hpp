// Links: the streams of one rank to all others: shared-memory rings to the ranks of its host, TCP to the rest. Links
// makes a TCP connection to a rank at the first use.
//
// Usually both ranks want a connection at once, to send or to receive. The lower rank makes it; the other waits a
// moment, then makes one too. A peer to which connecting fails, or whose connections have ended, may meanwhile have
// made a new connection, sent everything, and left. So this rank treats it as unreachable, or gone, only after it has
// accepted all connections that had arrived by then. Before it reports a peer as unreachable, it also waits a while for
// news of the cause.
//
// Threads: one at a time (the world's lock).
#pragma once

#include "core/deadline.hpp"
#include "security/wire.hpp"
#include "transport/shm/neighbours.hpp"
#include "transport/shm/staging_copy.hpp"
#include "transport/tcp/socket_stream.hpp"

#include <tutti/transport.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::transport {

/// Makes connections to other ranks, and accepts theirs.
class Connector {
 public:
    virtual ~Connector() = default;
    /// A connection on which this rank sends to a peer, made by `limit`. Throws DistError.
    virtual security::Connection connect(int peer, const Deadline& limit) = 0;
    /// Whether take_incoming() would return a connection. Any thread.
    virtual bool has_incoming() const noexcept = 0;
    /// The connections that other ranks have made since the last call.
    virtual std::vector<std::pair<int, security::Connection>> take_incoming() = 0;
    /// The number of the first round of accepting connections that begins after this call.
    virtual std::uint64_t next_round() const noexcept = 0;
    /// Whether that round has ended: take_incoming() then has every connection that was made before the round began.
    virtual bool is_through(std::uint64_t round) const noexcept = 0;
};

struct LinkOptions {
    int rank = 0;
    Congestion congestion;
    Lanes lanes;
    std::vector<Checksums> checksums;    ///< by rank
    std::chrono::milliseconds patience;  ///< how long to try to connect to a peer
    StagingCopy* short_copy = nullptr;   ///< how bytes are copied into a ring
};

class Links final : public Streams {
 public:
    /// `neighbours` and `connector` must outlive it.
    Links(LinkOptions options, const Neighbours& neighbours, Connector& connector);

    Stream* to(int peer) override;
    Stream* existing(int peer) override;
    /// Whether there are TCP connections to a peer.
    bool is_connected(int peer) const noexcept;
    /// Whether this rank has taken all connections that a peer has made: true after the round of accepting connections
    /// that follows the first call. Call it once the peer makes no more.
    bool has_taken_all(int peer);
    /// The streams to ranks that have TCP connections now.
    std::vector<SocketStream*> connected();
    /// Takes the connections that other ranks have made; returns the ranks that have made any since the last call.
    std::vector<int> take_arrived();
    /// The first peer found to be unreachable since the last call, and why.
    std::optional<std::pair<int, std::string>> take_unreachable() { return std::exchange(unreachable_, std::nullopt); }
    /// Makes no connection from now on: this rank will send nothing more.
    void stop_connecting() noexcept { connects_ = false; }
    void close() noexcept;

 private:
    SocketStream& socket_to(int peer);
    bool lets_peer_connect(int peer);
    void add_lane(int peer, SocketStream& socket);
    Stream* connect(int peer, SocketStream& socket);
    void take_incoming();

    struct Refused {
        Instant since;
        std::string why;
    };
    LinkOptions options_;
    const Neighbours& neighbours_;
    Connector& connector_;
    bool connects_ = true;
    SocketTime socket_time_;
    std::vector<std::unique_ptr<Stream>> streams_;  // by rank, made on first use
    std::vector<Instant> wanted_;                   // by rank: when this rank first wanted a connection
    std::map<int, Refused> refused_;                // ranks to which connecting failed
    std::map<int, std::uint64_t> looks_;  // by rank: the round after which all connections made before are known
    std::optional<std::pair<int, std::string>> unreachable_;
    std::vector<int> arrived_;  // ranks whose connections have been taken
};

}  // namespace tutti::transport
