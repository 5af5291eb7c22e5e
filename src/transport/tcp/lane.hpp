// Lane: one of a stream's TCP connections, and the chunks that travel on it in both directions.
//
// A chunk is a header, with its number and length, and that many bytes of the stream. One lane carries the whole chunk.
// A chunk without bytes is the last one: it distinguishes the end of the stream from a broken connection.
//
// TCP's own checksum has 16 bits, and devices that take packets apart on the way recompute it: it misses one in some
// ten thousand damaged segments (Stone and Partridge, 2000). So chunks and their headers each have a CRC-32C, if the
// ranks want that. The reader gets a short chunk only after all of it has arrived and its CRC is right, and the last
// bytes of a longer chunk likewise: a damaged message never completes.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"
#include "security/wire.hpp"
#include "transport/tcp/lane_choice.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

struct iovec;

namespace tutti::transport {

/// The header before a chunk's bytes; little-endian machines only, like the rest of the wire format.
struct ChunkHeader {
    std::uint32_t number = 0;      ///< from 0, modulo 2^32: the chunk's place in the stream
    std::uint32_t bytes : 24 = 0;  ///< 0: the stream ends here
    std::uint32_t lanes : 8 = 0;   ///< on how many lanes the sender wants to write
    std::uint32_t sum = 0;         ///< CRC-32C of the bytes; 0 without checksums
    std::uint32_t own_sum = 0;     ///< CRC-32C of the header up to this word; 0 without checksums

    std::uint32_t right_sum() const noexcept;
};
static_assert(sizeof(ChunkHeader) == 16);
inline constexpr std::size_t chunk_bytes_max = std::size_t{1} << 20;
/// One read takes a header and up to this many bytes.
inline constexpr std::size_t short_chunk_bytes = 8192 - sizeof(ChunkHeader);

/// Whether chunks have checksums; equal on both sides.
enum class Checksums : bool { off, on };

/// Bytes that a stream is to send; the first has the number `begin` in the stream.
struct Window {
    std::uint64_t begin = 0;
    std::span<const std::byte> first, second;

    std::uint64_t end() const noexcept { return begin + first.size() + second.size(); }
    /// Puts the bytes from `from` to `to` that are in the window into `parts`; returns the number of parts, at most
    /// two.
    std::size_t cut(std::uint64_t from, std::uint64_t to, iovec* parts) const noexcept;
    /// The CRC-32C of the bytes from `from` to `to`, all of which must be in the window.
    std::uint32_t sum(std::uint64_t from, std::uint64_t to) const noexcept;
};

/// What a lane sends before the bytes of a chunk: the chunk's header, perhaps preceded by a whole chunk of few bytes.
class ChunkStart {
 public:
    static constexpr std::size_t few_bytes = 64;
    void add(const ChunkHeader& header) noexcept { add(std::as_bytes(std::span(&header, 1))); }
    void add(std::span<const std::byte> bytes) noexcept {
        TUTTI_ASSERT(size_ + bytes.size() <= bytes_.size());
        std::copy(bytes.begin(), bytes.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(size_));
        size_ += bytes.size();
    }
    std::span<const std::byte> bytes() const noexcept { return std::span(bytes_).first(size_); }

 private:
    std::array<std::byte, 2 * sizeof(ChunkHeader) + few_bytes> bytes_;
    std::size_t size_ = 0;
};

class Lane {
 public:
    /// TLS connections use no checksums, since TLS protects their bytes.
    Lane(security::Connection connection, Checksums checksums)
        : fd_(std::move(connection.fd)),
          wire_(std::move(connection.wire)),
          checks_(checksums == Checksums::on && !wire_.is_encrypted()) {
        TUTTI_ASSERT(fd_.get() >= 0);
    }
    int fd() const noexcept { return fd_.get(); }
    /// The descriptor that is readable when more input can be read.
    int input_fd() const noexcept { return wire_.to_poll(fd_.get()); }

    /// Whether a chunk is being sent, some bytes of which the kernel has not accepted.
    bool sending() const noexcept { return out_begin_ < out_end_; }
    /// The number in the stream of the first byte that the current chunk still has to send.
    std::uint64_t position() const noexcept;
    /// The bytes that the kernel has accepted and not sent.
    std::size_t unsent() const noexcept;
    /// The bytes that the kernel has accepted and the peer's kernel has not acknowledged.
    std::size_t unacknowledged() const noexcept;
    /// Learns how quickly the network takes bytes from it.
    void look_at_pace(Instant now);
    double rate() const noexcept { return pace_.rate(); }
    /// Begins the chunk of the bytes from `begin` to `end`: passes `start`, then as many of the bytes as possible, to
    /// the kernel. If the kernel accepts nothing, returns false without effect.
    bool begin(const ChunkStart& start, std::uint64_t begin, std::uint64_t end, const Window& window);
    /// Continues to send the current chunk.
    void go_on(const Window& window);
    /// Sends the last chunk, with this number. False: the kernel does not accept it now; either nothing has been sent,
    /// or the lane is ending(), and nothing else may be sent on it.
    bool end(std::uint32_t number);
    bool ending() const noexcept { return ending_; }
    /// Tells the peer that nothing more will come on this lane.
    void close_output() noexcept;
    /// For fault injection: damages the next bytes sent by TLS. False: the lane has no TLS.
    bool spoil() noexcept { return wire_.spoil(); }
    /// Whether the peer's kernel has acknowledged all that was sent, including the end of the output, or never will.
    bool confirmed() const noexcept;

    /// The number of the chunk whose bytes come next; nullopt while unknown.
    std::optional<std::uint32_t> incoming();
    /// On how many lanes the peer wanted to write when it sent that chunk.
    int lanes_of_peer() const noexcept { return in_lanes_; }
    /// Reads bytes of that chunk; 0: none have arrived.
    std::size_t take(std::span<std::byte> into);
    /// Whether a chunk has begun to arrive, and some of its bytes have not been taken.
    bool receiving() const noexcept { return in_left_ > 0; }
    /// Whether incoming() is the last chunk, which ends the stream.
    bool brings_end() const noexcept { return in_end_; }
    /// Whether the lane knows the number of the next chunk without a system call.
    bool holds_chunk() const noexcept { return receiving() || in_end_ || shows_chunk(); }

    /// This rank can send nothing more; it can still read the bytes that the peer sent before.
    bool broken() const noexcept { return broken_; }
    /// Why nothing more will come; empty while more may come.
    const std::string& ended() const noexcept { return why_; }
    /// Whether an error, not the peer, ended the input.
    bool broke_off() const noexcept { return broke_off_; }
    /// Whether bytes were damaged on the way; ended() says which.
    bool damaged() const noexcept { return damaged_; }

 private:
    bool send(const Window& window);
    bool shows_chunk() const noexcept;
    bool is_right(const ChunkHeader& header);
    void damage(std::string what);
    void tell_of_damage();
    std::size_t buffered() const noexcept { return ahead_end_ - ahead_begin_; }
    std::size_t counted(ssize_t result);

    UniqueFd fd_;
    security::Wire wire_;
    bool checks_;
    bool broken_ = false, damaged_ = false, ending_ = false;
    std::string why_;
    bool broke_off_ = false;

    LanePace pace_;
    ChunkStart out_start_;
    std::size_t out_sent_ = 0;  // including out_start_
    std::uint64_t out_begin_ = 0, out_end_ = 0;

    int in_lanes_ = 1;
    ChunkHeader in_;
    std::size_t in_left_ = 0;
    bool in_end_ = false;
    std::uint32_t in_sum_ = 0;  // of the bytes taken so far
    // Bytes read beyond a chunk, and short chunks, which one read brings.
    std::array<std::byte, sizeof(ChunkHeader) + short_chunk_bytes> ahead_;
    std::size_t ahead_begin_ = 0, ahead_end_ = 0;
};

}  // namespace tutti::transport
