// Member: the interface of a group, from this rank's point of view, for the code that serves all groups of a world:
// that code moves operations, tells ranks of failures, and answers the probes by which waiting ranks ask for this
// rank's operation. Group implements it.
//
// Threads: one at a time (the world's lock), unless a function says otherwise.
#pragma once

#include "core/deadline.hpp"

#include <cstdint>
#include <exception>
#include <memory>
#include <string>

namespace tutti::record {
class Recorder;
}
namespace tutti::rendezvous {
struct Verdict;
}
namespace tutti::transport {
class Mailbox;
}

namespace tutti::detail {

class FailureInquiry;
class Operation;
class Ranks;

/// The streams of a registered transport that carries a group's messages, and the mailbox over them.
class ForeignStreams {
 public:
    virtual ~ForeignStreams() = default;
    virtual transport::Mailbox& mailbox() noexcept = 0;
    /// Whether this rank may have exchanged bytes with rank `peer` of the world.
    virtual bool is_connected(int peer) = 0;
};

/// The collectives of a group that have been issued on this rank and are not complete: they run one after the other.
class IssuedCollectives {
 public:
    virtual ~IssuedCollectives() = default;
    /// Moves them forward without blocking. True if anything moved.
    virtual bool progress() = 0;
    /// The current collective, which is the oldest; null: there is none.
    virtual std::shared_ptr<Operation> front() const = 0;
    /// Whether the current collective will succeed although ranks of a group disagree about a later one: all ranks have
    /// entered it and agree on it, and a library carries it out, or is about to.
    virtual bool ends_before(const rendezvous::Verdict& disagreement) const = 0;
    /// Completes all with the error.
    virtual void drop(const std::exception_ptr& error) = 0;
    /// Notes in the recorder which ranks the current one waits for, from `since` to `now`, and which ranks have left.
    virtual void record_waits(Instant since, Instant now) = 0;
    /// Checks the deadline of the current one, and whether other ranks disagree about it or have left.
    virtual void check_front(Instant now) = 0;
    /// Checks whether other ranks disagree about the last one, when this rank has none in flight.
    virtual void check_last() = 0;
    virtual FailureInquiry& inquiry() = 0;
    /// The mailbox that carries the messages of the current one now.
    virtual transport::Mailbox& mailbox_of_front() const = 0;

    // What other ranks' probes ask (transport::Calls).
    virtual std::uint64_t fingerprint_at(std::uint64_t sequence) const = 0;
    virtual bool has_finished(std::uint64_t sequence) const = 0;
    /// Whether this rank has handed all bytes for `peer` in that collective to a stream.
    virtual bool has_sent_all(int peer, std::uint64_t sequence) const = 0;
};

class Member {
 public:
    virtual ~Member() = default;
    // These functions return what never changes. Any thread.
    virtual const std::string& name() const noexcept = 0;
    /// The group's number in the world.
    virtual std::uint32_t index() const noexcept = 0;
    virtual const Ranks& ranks() const noexcept = 0;
    virtual record::Recorder& recorder() noexcept = 0;
    virtual FailureInquiry& inquiry() noexcept = 0;
    virtual IssuedCollectives& collectives() noexcept = 0;
    /// The transport that carries the group's bytes instead of the world's streams; null: the world's streams do.
    virtual ForeignStreams* transport() const noexcept = 0;
    /// The mailbox of its messages: the world's, unless another transport carries them.
    virtual transport::Mailbox& mailbox() const noexcept = 0;

    /// Completes an operation, with an error or (null) success, and records its end.
    virtual void end(const std::shared_ptr<Operation>& operation, const std::exception_ptr& error) = 0;
    /// The world has failed: completes the operations that backends have under way. Not under the lock.
    virtual void end_handed_over(const std::exception_ptr& failure) = 0;
    /// Blocks until the operation is complete, whichever thread moves it; throws Timeout if the deadline passes first.
    /// Not under the lock.
    virtual void wait(Operation& operation, const Deadline& deadline) = 0;
    /// As wait(), for an operation that a backend runs; and until an operation on a device has been issued.
    virtual void wait_for_handed_over(Operation& operation, const Deadline& deadline) = 0;
    virtual void wait_until_issued(Operation& operation) = 0;
};

}  // namespace tutti::detail
