// Transports: the components that carry bytes between two ranks. Shared memory and TCP are built in; others are
// registered by a program or a shared library, and a group names one as its backend. tutti's messages, collectives,
// timeouts, mismatch detection and recorder then work over its bytes.
//
// A transport gives each rank one stream to each other rank of a group. A stream delivers bytes in order and without
// loss, or reports that it is broken. It never blocks: it takes and gives as many bytes as it can, and has a descriptor
// (for poll) on which a rank can sleep until there is more. For a library without descriptors, the transport has a
// thread that writes to an eventfd.
//
// A transport can offer collectives of its library (Streams::offers); tutti builds the others from messages. It can
// also offer zero-copy transfers of long messages (Streams::send and receive).
//
// A shared library libtutti-backend-NAME.so (see tutti/backend.hpp) with a transport contains
// TUTTI_TRANSPORT_LIBRARY { register_transport("NAME", ...); }. tutti refuses it, with a message, where it was built
// for another version of this header (TUTTI_TRANSPORT_ABI).
//
// Threads: one thread at a time calls the streams of a group. No function of a stream may block.
#pragma once

#include <tutti/export.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The version of this header; tutti loads no libraries of another version.
#define TUTTI_TRANSPORT_ABI 4

namespace tutti {

struct BackendRequest;
struct DistributedBackendOptions;

namespace transport {

enum class StreamState {
    open,
    ended,    ///< the peer has said that it sends nothing more, and all that it sent has been read
    closed,   ///< the connection broke off
    damaged,  ///< bytes of the peer changed on the way; closed too
};

/// A descriptor worth polling, for input or for output.
struct Pollable {
    int fd;
    bool output;
};

/// A message that a stream carries as a whole, in order with its bytes.
struct ShortMessage {
    std::uint64_t channel;
    std::uint64_t fingerprint;
    std::uint32_t given_back;   ///< flow-control credit that the sender gives back, in bytes
    std::uint32_t kind : 8;     ///< opaque
    std::uint32_t length : 24;  ///< of the payload, in bytes
};
/// What can be read next from a stream.
enum class Arrival { nothing, bytes, short_message };

/// One rank's end of an ordered, reliable pipe of bytes in both directions between two ranks.
class Stream {
 public:
    virtual ~Stream() = default;
    /// Takes bytes from `header`, then from `payload`; returns how many in all (0: try again later). The
    /// caller's next write passes the bytes that were not taken again: the stream may have begun to send them.
    virtual std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) = 0;
    /// Puts bytes into `into`, then into `ahead`; returns how many in all (0: no data now, or closed). A
    /// transport that can corrupt bytes in transit must detect it: a header given to write() arrives unchanged or not
    /// at all, and a corrupted payload is never delivered to its end.
    virtual std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) = 0;
    /// Takes a whole message, or nothing (false): when there is no room now, or the stream carries only bytes, as
    /// all streams but those in shared memory do.
    virtual bool put(const ShortMessage& /*message*/, const std::byte* /*payload*/) { return false; }
    /// Tells what can be read next; fills in `message` if it is a short message. A stream that carries only bytes
    /// always returns Arrival::bytes, even if none has arrived.
    virtual Arrival next(ShortMessage& /*message*/) { return Arrival::bytes; }
    /// Copies the payload of the message that next() has shown, and removes that message.
    virtual void take(std::byte* /*into*/) {}
    /// Whether a round trip to the peer takes so long (100 us or more) that a message of a megabyte had better not wait
    /// for one.
    virtual bool is_far() const noexcept { return false; }
    /// Whether a read of an empty stream takes a system call.
    virtual bool look_takes_call() const noexcept { return false; }
    virtual StreamState state() const noexcept = 0;
    /// Ends this rank's direction behind all bytes written, as shutdown(SHUT_WR). False: not possible yet; call again.
    virtual bool end() { return true; }
    /// Closes the stream, even if the peer cannot be notified.
    virtual void close() noexcept = 0;
    /// Whether this process may exit without losing bytes that it has written, or its end of data.
    virtual bool delivered() const noexcept { return true; }
    /// Why the stream closed, for error messages.
    virtual std::string reason() const = 0;
    /// Adds the descriptors to poll until the stream can be read, or, with `output`, can also be written. A stream in
    /// memory adds none.
    virtual void pollables(bool /*output*/, std::vector<Pollable>& /*into*/) const {}
};

/// A collective, or one end of a message, that the library of a transport carries out. tutti calls it under its lock,
/// one thread at a time.
class LibraryCall {
 public:
    /// Cancels a call that is not complete. When it returns, nothing accesses the buffers of the call any more; for
    /// that it may block for a bounded time.
    virtual ~LibraryCall() = default;
    /// Whether the call has ended; may be called any number of times. Throws DistError, at each call, if it has failed.
    /// Never blocks.
    virtual bool done() = 0;
    /// Adds the descriptors to poll until the call is complete.
    virtual void pollables(std::vector<Pollable>& into) const = 0;
};

/// All streams of a rank, by peer. The destructor may block, for a bounded time, until bytes that have been written are
/// sent; it drops bytes of closed streams.
class Streams {
 public:
    virtual ~Streams() = default;
    /// The stream to a peer; makes one if there is none. Null: the connection is not ready; call again.
    virtual Stream* to(int peer) = 0;
    /// The stream to a peer, if it may have carried bytes in either direction; null otherwise.
    virtual Stream* existing(int peer) = 0;
    /// Whether the transport's library has the collective, with the request's rounding and order of reduction. tutti
    /// never asks for an average (it divides a sum), nor for an all_to_all, whose counts differ between ranks. The
    /// answer must be the same on all ranks whose requests have the same type, operator, root and counts. Never blocks.
    virtual bool offers(const BackendRequest& /*request*/) { return false; }
    /// Begins a collective that offers() has accepted, after all ranks have entered it and agreed on its arguments. The
    /// request outlives the LibraryCall. tutti begins collectives in the same order on all ranks, each after the
    /// previous LibraryCall is destroyed; messages use the streams meanwhile. After a cancelled collective, tutti
    /// begins no further one. Never blocks. Throws DistError.
    virtual std::unique_ptr<LibraryCall> begin(const BackendRequest& /*request*/) { return nullptr; }
    /// Begins the receiver's end of a long message that the library moves from the sender's memory to `into`. Null: its
    /// bytes use the stream instead. `number` is the sender's, unique among its messages in flight. Never blocks; a
    /// failure shows in LibraryCall::done(). After a cancelled message, tutti begins no further one with that peer.
    virtual std::unique_ptr<LibraryCall> receive(int /*peer*/, std::uint64_t /*number*/,
                                                 std::span<std::byte> /*into*/) {
        return nullptr;
    }
    /// Begins the sender's end, after the peer has begun the receiver's end for equally many bytes. The call is
    /// complete when the bytes may be overwritten. Must not return null if the peer's receive() did not. Never blocks.
    virtual std::unique_ptr<LibraryCall> send(int /*peer*/, std::uint64_t /*number*/,
                                              std::span<const std::byte> /*bytes*/) {
        return nullptr;
    }
    /// Whether threads of the library move all bytes and carry out the calls. A rank that waits then sleeps on the
    /// descriptors at once, instead of spinning, and leaves its core to these threads.
    virtual bool has_threads() const noexcept { return false; }
};

}  // namespace transport

/// Makes this rank's streams to the other ranks of a group; peers are ranks of that group. All ranks of the group call
/// it at the same time, and can exchange addresses in the options' store. Throws DistError if a rank is missing after
/// the options' timeout.
using MakeStreams = std::function<std::unique_ptr<transport::Streams>(const DistributedBackendOptions&)>;

/// From now on groups may name the transport as their backend, for host memory. `make` makes the streams of each group,
/// on each rank. Throws InvalidArgument for a name that is taken, or that is not made of letters, digits, '-' and '_'.
TUTTI_API void register_transport(std::string_view name, MakeStreams make);

/// Begins the definition of the function that a transport's library runs when it is loaded. Needs tutti/backend.hpp.
#define TUTTI_TRANSPORT_LIBRARY                                                   \
    extern "C" __attribute__((visibility("default"))) int tutti_transport_abi() { \
        return TUTTI_TRANSPORT_ABI;                                               \
    }                                                                             \
    TUTTI_BACKEND_LIBRARY

}  // namespace tutti
