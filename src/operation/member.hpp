// Member: this rank in a group, for the code that serves all groups of a world: it moves their operations, tells ranks
// of failures, and answers their questions. Group implements it.
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

/// The streams of another library's transport that carry a group's messages, and the mailbox over them.
class ForeignStreams {
 public:
    virtual ~ForeignStreams() = default;
    virtual transport::Mailbox& mailbox() noexcept = 0;
    /// Whether bytes have gone to a rank of the world or come from it, or may have.
    virtual bool is_connected(int peer) = 0;
};

/// The collectives of a group that have been issued on this rank, and are not over: they run one after the other.
class IssuedCollectives {
 public:
    virtual ~IssuedCollectives() = default;
    /// Moves them on as far as they go. True if anything moved.
    virtual bool progress() = 0;
    /// The one that moves; null: none.
    virtual std::shared_ptr<Operation> front() const = 0;
    /// Whether the one that moves ends well although ranks of a group disagree about a later collective: all ranks have
    /// come to it and mean the same, and a library carries it out, or is about to.
    virtual bool ends_before(const rendezvous::Verdict& disagreement) const = 0;
    /// All end with it.
    virtual void drop(const std::exception_ptr& error) = 0;
    /// The recorder learns which ranks the one that moves waits for, since a look before `now`, and which have left.
    virtual void record_waits(Instant since, Instant now) = 0;
    /// Checks that the one that moves is in time, and goes well, as far as this rank can see.
    virtual void check_front(Instant now) = 0;
    /// The latter of the last one, when this rank has none in flight.
    virtual void check_last() = 0;
    virtual FailureInquiry& inquiry() = 0;
    /// The mailbox by which the one that moves goes on now.
    virtual transport::Mailbox& mailbox_of_front() const = 0;

    // The questions of other ranks (transport::Calls).
    virtual std::uint64_t fingerprint_at(std::uint64_t sequence) const = 0;
    virtual bool has_finished(std::uint64_t sequence) const = 0;
    /// Whether all bytes that this rank sends to `peer` in that collective, if any, are on their way.
    virtual bool has_sent_all(int peer, std::uint64_t sequence) const = 0;
};

class Member {
 public:
    virtual ~Member() = default;
    // These never change. Any thread.
    virtual const std::string& name() const noexcept = 0;
    /// Its number in the world.
    virtual std::uint32_t index() const noexcept = 0;
    virtual const Ranks& ranks() const noexcept = 0;
    virtual record::Recorder& recorder() noexcept = 0;
    virtual FailureInquiry& inquiry() noexcept = 0;
    virtual IssuedCollectives& collectives() noexcept = 0;
    /// What carries the group's bytes in place of the world's streams; null: these do.
    virtual ForeignStreams* transport() const noexcept = 0;
    /// Its messages: the world's, unless another transport carries them.
    virtual transport::Mailbox& mailbox() const noexcept = 0;

    /// An operation is over, with an error or well: recorded, and complete.
    virtual void end(const std::shared_ptr<Operation>& operation, const std::exception_ptr& error) = 0;
    /// The world has failed: ends the operations that backends have under way. Not under the lock.
    virtual void end_handed_over(const std::exception_ptr& failure) = 0;
    /// Blocks until the operation is complete, whoever moves it; throws Timeout when the deadline has passed first. Not
    /// under the lock.
    virtual void wait(Operation& operation, const Deadline& deadline) = 0;
    /// The same for one that a backend has under way; and until one of a device has been issued.
    virtual void wait_for_handed_over(Operation& operation, const Deadline& deadline) = 0;
    virtual void wait_until_issued(Operation& operation) = 0;
};

}  // namespace tutti::detail
