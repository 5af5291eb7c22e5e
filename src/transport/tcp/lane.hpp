// Lane: one of a stream's TCP connections, and the chunks that travel on it in both directions.
//
// A chunk is a header, its number and its length, and as many bytes of the stream. It is on one lane as a whole. One
// without bytes is the last: it tells an end from a connection that broke off.
//
// TCP's own checksum has 16 bits, and devices that take packets apart on the way make it anew: of the segments that
// change, one in some ten thousand passes (Stone and Partridge, 2000). So chunks and their headers have a CRC-32C each,
// if the ranks want that. The reader gets a short chunk when all of it is here and right, and of a longer one the last
// bytes only then: a message that has changed never comes to its end.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"
#include "security/wire.hpp"

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
    std::uint32_t number = 0;      ///< from 0, modulo 2^32: the stream's order
    std::uint32_t bytes : 24 = 0;  ///< 0: the stream ends here
    std::uint32_t lanes : 8 = 0;   ///< on how many lanes the sender wants to write
    std::uint32_t sum = 0;         ///< CRC-32C of the bytes; 0 without checksums
    std::uint32_t own_sum = 0;     ///< of the header before this word; 0 without checksums

    std::uint32_t right_sum() const noexcept;
};
static_assert(sizeof(ChunkHeader) == 16);
inline constexpr std::size_t chunk_bytes_max = std::size_t{1} << 20;
/// One read takes so many bytes and their header.
inline constexpr std::size_t short_chunk_bytes = 8192 - sizeof(ChunkHeader);

/// Whether chunks have checksums; the same on both sides.
enum class Checksums : bool { off, on };

/// Bytes that a stream is asked to send, of which the first is the stream's byte number `begin`.
struct Window {
    std::uint64_t begin = 0;
    std::span<const std::byte> first, second;

    std::uint64_t end() const noexcept { return begin + first.size() + second.size(); }
    /// The bytes from `from` to `to`, as far as they are in the window; how many parts it filled in, at most two.
    std::size_t cut(std::uint64_t from, std::uint64_t to, iovec* parts) const noexcept;
    /// The CRC-32C of these bytes, all of which are in it.
    std::uint32_t sum(std::uint64_t from, std::uint64_t to) const noexcept;
};

/// The bytes that a lane sends before a chunk's: its header, and perhaps a whole chunk of few bytes.
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
    /// Bytes that TLS protects need no checksums.
    Lane(security::Connection connection, Checksums checksums)
        : fd_(std::move(connection.fd)),
          wire_(std::move(connection.wire)),
          checks_(checksums == Checksums::on && !wire_.is_encrypted()) {
        TUTTI_ASSERT(fd_.get() >= 0);
    }
    int fd() const noexcept { return fd_.get(); }
    /// Readable where something more can be read.
    int input_fd() const noexcept { return wire_.to_poll(fd_.get()); }

    /// A chunk is under way, whose last byte the kernel has not taken yet.
    bool sending() const noexcept { return out_begin_ < out_end_; }
    /// The first byte of the stream that the chunk under way still has to send.
    std::uint64_t position() const noexcept;
    /// Bytes that the kernel has taken and not sent yet.
    std::size_t unsent() const noexcept;
    /// Bytes that the kernel has taken and the peer's kernel has not confirmed yet.
    std::size_t unacknowledged() const noexcept;
    /// Begins the chunk of the bytes from `begin` to `end`: gives the kernel `start`, then as many of them as it takes
    /// now; where it takes nothing at all, does nothing and returns false.
    bool begin(const ChunkStart& start, std::uint64_t begin, std::uint64_t end, const Window& window);
    /// Goes on with the chunk under way.
    void go_on(const Window& window);
    /// Says that the stream ends with this number; false if the kernel does not take it now: nothing has happened, or
    /// the lane is ending(), and nothing else may be said on it.
    bool end(std::uint32_t number);
    bool ending() const noexcept { return ending_; }
    /// The peer learns that nothing more will come on this lane.
    void close_output() noexcept;
    /// For faults on request: the next bytes sent by TLS change on the way. False: there is no TLS.
    bool spoil() noexcept { return wire_.spoil(); }
    /// Whether the peer's kernel has confirmed all that was sent, the end of the output too, or never will.
    bool confirmed() const noexcept;

    /// The number of the chunk whose bytes come next; nothing while that is not known.
    std::optional<std::uint32_t> incoming();
    /// On how many lanes the peer wanted to write then.
    int lanes_of_peer() const noexcept { return in_lanes_; }
    /// Takes bytes of that chunk; 0: none are here now.
    std::size_t take(std::span<std::byte> into);
    /// A chunk has begun to come whose bytes have not all been taken.
    bool receiving() const noexcept { return in_left_ > 0; }
    /// The stream ends with incoming().
    bool brings_end() const noexcept { return in_end_; }
    /// The lane knows the number of the next chunk without asking the kernel.
    bool holds_chunk() const noexcept { return receiving() || in_end_ || shows_chunk(); }

    /// This rank can send nothing more; it can still read the bytes that the peer sent before.
    bool broken() const noexcept { return broken_; }
    /// Why nothing more will come; empty while it may.
    const std::string& ended() const noexcept { return why_; }
    /// An error ended it, not the peer.
    bool broke_off() const noexcept { return broke_off_; }
    /// Bytes have changed on the way; ended() names them.
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

    ChunkStart out_start_;
    std::size_t out_sent_ = 0;  // with the start
    std::uint64_t out_begin_ = 0, out_end_ = 0;

    int in_lanes_ = 1;
    ChunkHeader in_;
    std::size_t in_left_ = 0;
    bool in_end_ = false;
    std::uint32_t in_sum_ = 0;  // of the bytes that were taken
    // Bytes read beyond a chunk, and short chunks, which come in one read.
    std::array<std::byte, sizeof(ChunkHeader) + short_chunk_bytes> ahead_;
    std::size_t ahead_begin_ = 0, ahead_end_ = 0;
};

}  // namespace tutti::transport
