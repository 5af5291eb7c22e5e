// Links: the streams of one rank to all others. Rings to the ranks that share its memory, TCP to the rest; a TCP
// connection is made at its first use.
//
// Usually both ranks want a connection at once, to send or to receive. The lower one makes it; the other waits for a
// moment, then makes it too. A rank that this one cannot connect to, or whose connections have ended, may have made
// another one, sent all that it had to send, and left: so it counts as unreachable, or as gone, only after this rank
// has looked at all connections that had come by then; as unreachable also after a while in which news of the cause
// arrives.
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

/// Makes connections between ranks, and takes those that others make.
class Connector {
 public:
    virtual ~Connector() = default;
    /// A connection on which this rank sends to a peer, made by `limit`. Throws DistError.
    virtual security::Connection connect(int peer, const Deadline& limit) = 0;
    /// Whether take_incoming() brings any. Any thread.
    virtual bool has_incoming() const noexcept = 0;
    /// Connections that others have made, since the last call.
    virtual std::vector<std::pair<int, security::Connection>> take_incoming() = 0;
    /// The number of the first look at arrived connections that begins after this call.
    virtual std::uint64_t next_round() const noexcept = 0;
    /// Whether that look is over: a rank that had connected before is among the incoming ones.
    virtual bool is_through(std::uint64_t round) const noexcept = 0;
};

struct LinkOptions {
    int rank = 0;
    Congestion congestion;
    Lanes lanes;
    std::vector<Checksums> checksums;    ///< by rank
    std::chrono::milliseconds patience;  ///< for a connection to a peer
    StagingCopy* short_copy = nullptr;   ///< how bytes get into a ring
};

class Links final : public Streams {
 public:
    /// Both must outlive it.
    Links(LinkOptions options, const Neighbours& neighbours, Connector& connector);

    Stream* to(int peer) override;
    Stream* existing(int peer) override;
    /// Whether there are TCP connections to a peer.
    bool is_connected(int peer) const noexcept;
    /// Whether all connections that a peer has made are taken. The first call begins a look at those that have arrived:
    /// ask when the peer makes no more.
    bool has_taken_all(int peer);
    /// The streams to ranks that have TCP connections now.
    std::vector<SocketStream*> connected();
    /// Takes the connections that others have made; the ranks that have made any since the last call.
    std::vector<int> take_arrived();
    /// The first peer, since the last call, that has turned out to be unreachable, and why.
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
    std::vector<Instant> wanted_;                   // by rank: when a connection was wanted first
    std::map<int, Refused> refused_;                // ranks that could not be connected to
    std::map<int, std::uint64_t> looks_;  // by rank, rounds after which all connections made by then are known
    std::optional<std::pair<int, std::string>> unreachable_;
    std::vector<int> arrived_;  // ranks whose connections have been taken
};

}  // namespace tutti::transport
