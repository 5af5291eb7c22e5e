// Stream: an ordered, reliable pipe of bytes in both directions between two ranks. The interface of every transport.
//
// Non-blocking: an operation moves as many bytes as it can and says how many. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::transport {

enum class StreamState {
    open,
    ended,    ///< the peer has said that it sends nothing more, and all that it sent has been read
    closed,   ///< it broke off
    damaged,  ///< bytes of the peer changed on the way; closed too
};

/// A descriptor worth polling, for input or for output.
struct Pollable {
    int fd;
    bool output;
};

/// A message that a stream carries in one piece, between its bytes and in order with them.
struct ShortMessage {
    std::uint64_t channel;
    std::uint64_t fingerprint;
    std::uint32_t given_back;   ///< credit, in bytes
    std::uint32_t kind : 8;     ///< of the frame
    std::uint32_t length : 24;  ///< of the payload, in bytes
};
/// The next thing that a stream has to offer.
enum class Arrival { nothing, bytes, short_message };

class Stream {
 public:
    virtual ~Stream() = default;
    /// Takes bytes from `header`, then from `payload`; returns how many in all (0: try again later). The caller passes
    /// the bytes not taken again, first of all: the stream may have begun to send some of them.
    virtual std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) = 0;
    /// Puts bytes into `into`, then into `ahead`; returns how many in all (0: nothing there now, or closed). Where
    /// bytes may change on the way: a header given to write() arrives as it was sent or not at all, and a payload that
    /// has changed never arrives as a whole.
    virtual std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) = 0;
    /// Takes a whole message, or nothing (false): when there is no room now, or the stream carries only bytes.
    virtual bool put(const ShortMessage& /*message*/, const std::byte* /*payload*/) { return false; }
    /// The next arrival; fills in `message` if it is a short message. A stream that carries only bytes says so without
    /// a look.
    virtual Arrival next(ShortMessage& /*message*/) { return Arrival::bytes; }
    /// The payload of the message that next() has shown, which goes with that.
    virtual void take(std::byte* /*into*/) {}
    /// Whether a look at an empty stream takes a system call.
    virtual bool look_takes_call() const noexcept { return false; }
    virtual StreamState state() const noexcept = 0;
    /// Says that nothing more will be written, behind all that has been. False: it cannot be said yet; call it again.
    virtual bool end() { return true; }
    /// Writes nothing more, whether or not that can be said.
    virtual void close() noexcept = 0;
    /// Whether this rank may go without losing bytes that it has written, or its end.
    virtual bool delivered() const noexcept { return true; }
    /// Why it closed.
    virtual std::string reason() const = 0;
    /// Adds the descriptors that tell that it can be read, or, where `output` waits to be written, that it can be
    /// written. None for memory.
    virtual void pollables(bool /*output*/, std::vector<Pollable>& /*into*/) const {}
};

/// The streams of a rank, by peer.
class Streams {
 public:
    virtual ~Streams() = default;
    /// The stream to a peer; makes one if there is none. Null: not yet, ask again.
    virtual Stream* to(int peer) = 0;
    /// The stream to a peer if there is one; null otherwise.
    virtual Stream* existing(int peer) = 0;
};

}  // namespace tutti::transport
