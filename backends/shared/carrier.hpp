// Carrier: moves frames between the ranks of a group; each foreign library has one. Messages adds the features that
// tutti's operations need: matching, any source, long messages that wait for their receiver (rendezvous).
//
// Threads: send() and stop() any; a carrier calls its Receiver from one thread of its own.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

namespace tutti::backends {

/// The header of every payload. Both sides are the same kind of machine, so it travels as it lies in memory.
struct Frame {
    enum class Kind : std::uint32_t {
        eager = 1,  ///< a short message, with its payload
        announce,   ///< a long message waits at its sender
        clear,      ///< its receiver is ready
        data,       ///< its payload
        refuse,     ///< its receiver expects another length
    };
    Kind kind = Kind::eager;
    std::uint32_t lane = 0;     ///< for the carrier's own use
    std::uint64_t channel = 0;  ///< 0: point to point; otherwise a collective
    std::uint64_t tag = 0;
    std::uint64_t number = 0;  ///< the sender's number of the message
    std::uint64_t bytes = 0;   ///< of the message, and of its payload
    bool has_payload() const noexcept { return (kind == Kind::eager || kind == Kind::data) && bytes > 0; }
};

/// The receiver of the frames.
class Receiver {
 public:
    virtual ~Receiver() = default;
    /// Returns the memory for this frame's payload. arrived() or lost() follows before the next frame.
    virtual void* place(int from, const Frame& frame) = 0;
    /// A frame without payload comes without place().
    virtual void arrived(int from, const Frame& frame) = 0;
    /// Whether this rank expects frames of another one: otherwise a carrier that polls for frames may sleep.
    virtual bool awaits() const = 0;
    /// The payload will not come.
    virtual void lost(const std::exception_ptr& error) = 0;
};

class Carrier {
 public:
    using Sent = std::function<void(const std::exception_ptr&)>;

    virtual ~Carrier() = default;
    /// Called once, before the first send(). The carrier drops `receiver` when it has stopped.
    virtual void start(std::shared_ptr<Receiver> receiver) = 0;
    /// Frames to one rank arrive in the order of their sending, even if no receive waits for them. Never waits.
    /// `payload` stays until `sent` is called, from any thread, at once or later. `to` is another rank.
    virtual void send(int to, Frame frame, const void* payload, Sent sent) = 0;
    /// From now on this rank expects frames.
    virtual void hurry() noexcept {}
    /// When it returns, the carrier touches no payload, has called every `sent`, and does not call the receiver any
    /// more. `leaves`: all went well, and the sent frames must arrive. May come from the carrier's own thread.
    enum class How { leaves, fails };
    virtual void stop(How how) noexcept = 0;
};

}  // namespace tutti::backends
