// Frame: the header of a message, or a control message between two mailboxes, in the stream between two ranks
// (WIRE.md). A stream that supports short messages (ShortMessage) carries a frame without payload as one of those.
//
// Threads: values.
#pragma once

#include <tutti/transport.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::transport {

/// Little-endian machines only, like the rest of the wire format.
struct Frame {
    enum class Kind : std::uint32_t {
        eager = 1,
        request = 2,
        clear = 3,
        data = 4,
        probe = 5,
        credit = 6,
        taken = 7,
        refused = 8,
        finished = 9,
        ready = 10
    };
    static constexpr std::uint32_t magic_number = 0x54554954;  // "TIUT"
    std::uint32_t magic = magic_number;
    Kind kind = Kind::eager;
    std::uint64_t world = 0;
    std::uint64_t channel = 0;
    std::uint64_t fingerprint = 0;
    std::uint64_t length = 0;  ///< bytes of the whole message
    std::uint64_t id = 0;      ///< request, clear, ready, data: the sender's transfer; eager, credit: bytes given back;
                               ///< refused: the request that the receiver will never take, or 0 in the answer to a
                               ///< probe; finished: unused (the frame answers a probe)
    std::uint64_t address = 0;  ///< request: where the message lies (an address or a Place), if the receiver may read
                                ///< it there; else 0

    std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
};
static_assert(sizeof(Frame) == 56);

inline constexpr std::uint64_t collective_channel = std::uint64_t{1} << 63;

/// Writes a frame without payload as one short message; false if the stream cannot take it.
bool put_frame(Stream& stream, const Frame& frame);
/// Decodes the frame of a short message that the stream has delivered. Its magic number is 0 if it holds no frame.
Frame take_frame(Stream& stream, const ShortMessage& message, std::uint64_t world);

}  // namespace tutti::transport
