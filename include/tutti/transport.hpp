// Transports: the parts that carry bytes between two ranks. Shared memory and TCP are built in. A program registers
// others, or a shared library does, and a group names one as its backend: tutti's messages, collectives, time limits,
// agreement of all ranks and record then run over its bytes.
//
// A transport gives each rank one stream to each other rank of a group: bytes in order and without loss, or the news
// that it cannot carry them any more. It never waits: it takes and gives as many bytes as it can, and has a descriptor
// on which a rank can sleep until there is more. A library without descriptors has a thread in its transport that
// writes to an eventfd.
//
// Where the transport's library has collectives of its own, the transport can offer them (Streams::offers); tutti makes
// the others of messages. Where it moves long messages without a copy, the transport can offer that, too
// (Streams::send and receive).
//
// A shared library libtutti-backend-NAME.so (see tutti/backend.hpp) with a transport contains
// TUTTI_TRANSPORT_LIBRARY { register_transport("NAME", ...); }. tutti refuses it, with a message, where it was built
// for another version of this header (TUTTI_TRANSPORT_ABI).
//
// Threads: those of a group's ranks call its streams, one thread at a time. No function of a stream may block.
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
    std::uint32_t kind : 8;     ///< of the frame
    std::uint32_t length : 24;  ///< of the payload, in bytes
};
/// The next thing that a stream has to offer.
enum class Arrival { nothing, bytes, short_message };

/// One rank's end of an ordered, reliable pipe of bytes in both directions between two ranks.
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
    /// Takes a whole message, or nothing (false): when there is no room now, or the stream carries only bytes, as
    /// all streams but those in shared memory do.
    virtual bool put(const ShortMessage& /*message*/, const std::byte* /*payload*/) { return false; }
    /// The next arrival; fills in `message` if it is a short message. A stream that carries only bytes returns
    /// Arrival::bytes without a look.
    virtual Arrival next(ShortMessage& /*message*/) { return Arrival::bytes; }
    /// Copies the payload of the message that next() has shown, and removes that message.
    virtual void take(std::byte* /*into*/) {}
    /// Whether a look at an empty stream takes a system call.
    virtual bool look_takes_call() const noexcept { return false; }
    virtual StreamState state() const noexcept = 0;
    /// Ends this rank's direction behind all bytes written, as shutdown(SHUT_WR). False: not possible yet; call again.
    virtual bool end() { return true; }
    /// Ends it even where the peer cannot be told.
    virtual void close() noexcept = 0;
    /// Whether this rank may go without losing bytes that it has written, or its end.
    virtual bool delivered() const noexcept { return true; }
    /// Why it closed.
    virtual std::string reason() const = 0;
    /// Adds the descriptors that tell that it can be read, or, where `output` waits to be written, that it can be
    /// written. None for memory.
    virtual void pollables(bool /*output*/, std::vector<Pollable>& /*into*/) const {}
};

/// A collective, or one end of a message, that the library of a transport carries out. tutti looks at it under its
/// lock.
class LibraryCall {
 public:
    /// Gives up a call that is not over. When it returns, nothing touches the buffers of the call any more. It may
    /// wait for a bounded time until that is so.
    virtual ~LibraryCall() = default;
    /// Whether it is over; callers may ask any number of times. Throws DistError when it has failed, at each call.
    /// Never waits.
    virtual bool done() = 0;
    /// Adds the descriptors that tell that it is over.
    virtual void pollables(std::vector<Pollable>& into) const = 0;
};

/// The streams of a rank, by peer. Its destructor may wait, for a bounded time, until bytes that have been written are
/// on their way; for those of a stream that has been closed it does not.
class Streams {
 public:
    virtual ~Streams() = default;
    /// The stream to a peer; makes one if there is none. Null: not yet, ask again.
    virtual Stream* to(int peer) = 0;
    /// The stream to a peer if bytes have gone over it, in either direction, or may have; null otherwise.
    virtual Stream* existing(int peer) = 0;
    /// Whether the transport's library has the collective, and rounds and orders as the request asks. tutti asks for no
    /// average: it divides a sum; and for no all_to_all, of which each pair of ranks knows only its own blocks. The
    /// answer must be the same on all ranks whose requests have the same type, operator, root and counts. Never waits.
    virtual bool offers(const BackendRequest& /*request*/) { return false; }
    /// Begins a collective that offers() has accepted, when all ranks have come to it and have been found to ask for
    /// the same. The request stays where it is as long as the call. tutti begins one call after the other, in the same
    /// order on all ranks, and each when the one before it has gone; messages go over the streams meanwhile. After a
    /// call that was given up there is no further one. Never waits. Throws DistError.
    virtual std::unique_ptr<LibraryCall> begin(const BackendRequest& /*request*/) { return nullptr; }
    /// The receiver's end of a long message that the library moves from one rank's memory to the other's. Null: its
    /// bytes go over the stream instead. The number is the sender's, and no other message that it has under way has it.
    /// Never waits; a failure shows in LibraryCall::done(). After a message that was given up its peer gets no other.
    virtual std::unique_ptr<LibraryCall> receive(int /*peer*/, std::uint64_t /*number*/,
                                                 std::span<std::byte> /*into*/) {
        return nullptr;
    }
    /// The sender's end, which tutti begins only after the peer has begun its own, for as many bytes. It is over when
    /// the bytes may change. Not null where the peer's receive() was not.
    virtual std::unique_ptr<LibraryCall> send(int /*peer*/, std::uint64_t /*number*/,
                                              std::span<const std::byte> /*bytes*/) {
        return nullptr;
    }
    /// Whether threads other than the rank's move all bytes and carry out the calls. A rank that waits for them sleeps
    /// on the descriptors at once, and leaves its core to these threads.
    virtual bool has_threads() const noexcept { return false; }
};

}  // namespace transport

/// Makes this rank's streams to the other ranks of a group: peers are ranks of that group. All of its ranks do so at
/// the same time; they can meet in the options' store. Throws DistError where they do not within the options' timeout.
using MakeStreams = std::function<std::unique_ptr<transport::Streams>(const DistributedBackendOptions&)>;

/// From now on a group's backend may be the name: `make` makes the streams of each group, on each rank. It serves host
/// memory. Throws InvalidArgument for a name that is taken or no word of letters, digits, '-' and '_'.
TUTTI_API void register_transport(std::string_view name, MakeStreams make);

/// Begins the function that a library with a transport runs when it is loaded. Needs tutti/backend.hpp.
#define TUTTI_TRANSPORT_LIBRARY                                                   \
    extern "C" __attribute__((visibility("default"))) int tutti_transport_abi() { \
        return TUTTI_TRANSPORT_ABI;                                               \
    }                                                                             \
    TUTTI_BACKEND_LIBRARY

}  // namespace tutti
