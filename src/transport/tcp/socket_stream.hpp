// SocketStream: a stream over one or several TCP connections.
//
// One connection serves both directions, so that acknowledgements travel with the data of the other side, and either
// rank may make it. Some networks limit the bandwidth of one connection: links that are bundled flow by flow, clouds
// that limit a flow, long ways whose bandwidth-delay product exceeds a socket's buffer. There a stream has several,
// lanes.
//
// Bytes travel in chunks (lane.hpp), each on the lane that takes it first: a quick one takes more of them than a slow
// one. While one lane is enough the stream writes on no other. The reader takes chunks in the order of their numbers;
// one that came early stays in its socket's buffer. A chunk without bytes is the last one: a rank that leaves waits
// until the kernels of its peers have confirmed it, and with it all bytes sent before. Source: striping over sockets as
// in PSockets (Sivakumar, Bailey and Grossman, 2000), here with a number for each piece instead of fixed turns.
#pragma once

#include "core/deadline.hpp"
#include "security/wire.hpp"
#include "transport/tcp/congestion.hpp"
#include "transport/tcp/lane.hpp"
#include "transport/tcp/lane_growth.hpp"

#include <tutti/transport.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace tutti::transport {

/// The time in which a thread moves many bytes between memory and sockets; one for all streams that it serves.
struct SocketTime {
    Clock::duration moving{};
};

class SocketStream final : public Stream {
 public:
    /// `has_all_lanes`: asked when all lanes have ended; while it says no, the peer may have made another one before.
    SocketStream(
        Congestion congestion, Lanes lanes, Checksums checksums, SocketTime& time,
        std::function<bool()> has_all_lanes = [] { return true; })
        : congestion_(std::move(congestion)),
          growth_(lanes),
          checksums_(checksums),
          time_(time),
          has_all_lanes_(std::move(has_all_lanes)) {}
    std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) override;
    std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) override;
    StreamState state() const noexcept override { return state_; }
    bool end() override;
    void close() noexcept override;
    bool delivered() const noexcept override;
    std::string reason() const override { return reason_; }
    bool look_takes_call() const noexcept override { return true; }
    void pollables(bool output, std::vector<Pollable>& into) const override;

    /// There is no lane yet.
    bool needs_connection() const noexcept { return lanes_.empty() && !given_up_; }
    /// Another lane would help.
    bool wants_connection() const noexcept { return wants_lane_ && !closed(); }
    /// A connection to the peer, made by either rank.
    void add(security::Connection connection);
    void add(UniqueFd fd) { add(security::Connection{std::move(fd), {}}); }
    /// There will be no further lanes; without any, nothing to write on.
    void give_up() noexcept;
    int lanes() const noexcept { return static_cast<int>(lanes_.size()); }
    /// For faults on request: all connections break off.
    void cut() noexcept;
    /// And: sends the next chunk as if it had changed on the way; false: without TLS or checksums the peer would not
    /// notice.
    bool spoil() noexcept;

 private:
    void use(int count);
    std::size_t send(const Window& window);
    std::optional<std::size_t> lane_for_next(std::uint64_t full) const;
    std::size_t header_alone(const Window& window) const;
    ChunkHeader header_of(std::uint32_t number, std::uint64_t begin, std::uint64_t end, const Window& window);
    bool broken() const noexcept;
    bool say_end();
    Lane* incoming_lane();
    bool brings_next_chunk(Lane& lane);
    std::size_t fill(std::span<std::byte> into);
    bool look_at_ends();
    bool closed() const noexcept { return state_ == StreamState::closed || state_ == StreamState::damaged; }
    void break_off(std::string reason, StreamState as = StreamState::closed);

    Congestion congestion_;
    LaneGrowth growth_;
    Checksums checksums_;
    SocketTime& time_;
    std::function<bool()> has_all_lanes_;
    std::vector<std::unique_ptr<Lane>> lanes_;
    bool given_up_ = false, wants_lane_ = false;
    bool has_end_ = false;                   // nothing more is written
    bool spoils_next_ = false;               // chunk
    StreamState state_ = StreamState::open;  // of the peer's direction
    std::string reason_;

    std::uint64_t written_ = 0;    // of the stream's bytes; those before have been taken
    std::uint64_t assigned_ = 0;   // those before are in chunks
    bool window_assigned_ = true;  // the last window had nothing beyond
    std::uint32_t next_out_ = 0;   // number of the next chunk
    // Of the next long chunk: no lane may have taken it when it was made.
    struct {
        std::uint64_t begin = 0, end = 0;
        std::uint32_t value = 0;
    } sum_;
    std::size_t used_ = 1;       // lanes that are written on
    int peer_wants_ = 1;         // lanes for its own bytes
    std::uint32_t next_in_ = 0;  // number of the chunk whose bytes come next
    Lane* in_ = nullptr;         // which has begun to bring it
    std::size_t likely_in_ = 0;  // the lane that brought the last one
    std::uint32_t looks_ = 0;    // in vain at that lane
};

}  // namespace tutti::transport
