// SocketStream: a stream over one or several TCP connections.
//
// One connection serves both directions, so that acknowledgements travel with the peer's data; either rank may make it.
// Some networks limit the bandwidth of one connection: bundled links that assign flows to links, clouds that limit a
// flow, long routes whose bandwidth-delay product exceeds a socket's buffer. There a stream uses several connections,
// called lanes.
//
// Bytes travel in chunks (lane.hpp), each on the lane that brings it first (lane_choice.hpp): a fast lane gets more
// chunks than a slow one. While one lane suffices, the stream writes on that one only. The reader takes chunks in the
// order of their numbers; one that arrives early stays in its socket's buffer. A chunk without bytes is the last one: a
// rank that leaves waits until the kernels of its peers have acknowledged it, and thus all bytes before it. Source:
// striping over sockets as in PSockets (Sivakumar, Bailey and Grossman, 2000), here with a number for each piece
// instead of fixed turns.
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

/// The time that a thread has spent moving many bytes between memory and sockets, over all streams that it serves.
struct SocketTime {
    Clock::duration moving{};
};

class SocketStream final : public Stream {
 public:
    /// `has_all_lanes`: the stream calls it when all its lanes have ended. If it returns false, the peer may have
    /// opened another lane before, and the stream waits for that lane.
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
    bool is_far() const noexcept override { return far_; }
    bool look_takes_call() const noexcept override { return true; }
    void pollables(bool output, std::vector<Pollable>& into) const override;

    /// Whether the stream has no lane yet.
    bool needs_connection() const noexcept { return lanes_.empty() && !given_up_; }
    /// Whether another lane would help.
    bool wants_connection() const noexcept { return wants_lane_ && !closed(); }
    /// Adds a connection to the peer, made by either rank.
    void add(security::Connection connection);
    void add(UniqueFd fd) { add(security::Connection{std::move(fd), {}}); }
    /// No further lanes will come; if there is none, the stream cannot write.
    void give_up() noexcept;
    int lanes() const noexcept { return static_cast<int>(lanes_.size()); }
    /// For fault injection: breaks all connections.
    void cut() noexcept;
    /// For fault injection: damages the next chunk; false: without TLS or checksums the peer would not notice.
    bool spoil() noexcept;

 private:
    void use(int count);
    std::size_t send(const Window& window);
    std::optional<std::size_t> lane_for_next(std::uint64_t full) const;
    void look_at_paces();
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
    bool given_up_ = false, wants_lane_ = false, far_ = false;
    bool has_end_ = false;                   // nothing more is written
    bool spoils_next_ = false;               // damages the next chunk
    StreamState state_ = StreamState::open;  // of the peer's direction
    std::string reason_;

    std::uint64_t written_ = 0;    // number of the next byte to write; the stream has accepted all before it
    std::uint64_t assigned_ = 0;   // all bytes before this one are in chunks
    bool window_assigned_ = true;  // the last window was assigned to chunks completely
    std::uint32_t next_out_ = 0;   // number of the next chunk
    // The CRC of the next long chunk, computed once: perhaps no lane accepted the chunk at the first attempt.
    struct {
        std::uint64_t begin = 0, end = 0;
        std::uint32_t value = 0;
    } sum_;
    std::size_t used_ = 1;       // lanes on which to write
    Instant next_look_{};        // at the speeds of the lanes
    int peer_wants_ = 1;         // lanes that the peer wants for its own bytes
    std::uint32_t next_in_ = 0;  // number of the chunk whose bytes come next
    Lane* in_ = nullptr;         // the lane that has begun to bring this chunk
    std::size_t likely_in_ = 0;  // the lane that brought the last one
    std::uint32_t looks_ = 0;    // polls of that lane that found nothing
};

}  // namespace tutti::transport
