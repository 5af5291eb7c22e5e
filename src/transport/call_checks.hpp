// CallChecks: detects that two ranks have called different operations when no message matches a receive, whose headers
// would show the difference. A rank that waits sends its peer a probe with its own fingerprint, and the peer compares
// and answers.
//
// Threads: one at a time.
#pragma once

#include "transport/findings.hpp"
#include "transport/matching.hpp"

#include <cstdint>

namespace tutti::transport {

/// Lets a mailbox ask its owner about the operations that use its channels. The mailbox calls these functions under its
/// lock.
class Calls {
 public:
    virtual ~Calls() = default;
    /// Whether this rank has left, or is leaving, the group that uses a channel: no receive will be posted there.
    virtual bool has_left(std::uint64_t /*channel*/) const { return false; }
    /// The fingerprint of this rank's collective on a channel; 0: not known (yet).
    virtual std::uint64_t fingerprint_of(std::uint64_t /*channel*/) const { return 0; }
    /// Whether this rank has finished the collective of a channel: no receive will be posted there.
    virtual bool has_finished(std::uint64_t /*channel*/) const { return false; }
    /// Whether the stream to `peer` has taken all messages that this rank's collective on the channel sends to `peer`.
    virtual bool has_sent_all(int /*peer*/, std::uint64_t /*channel*/) const { return false; }
};

class CallChecks {
 public:
    /// The CallChecks keeps references: all three arguments must outlive it.
    CallChecks(const Calls& calls, const Matching& matching, Findings& findings)
        : calls_(calls), matching_(matching), findings_(findings) {}

    bool has_left(std::uint64_t channel) const { return calls_.has_left(channel); }
    /// Checks a message that no posted receive matches. False: the message shows that its sender runs another
    /// operation.
    bool allows_unmet(int from, const Frame& frame);
    enum class Answer : std::uint8_t { none, refused, finished, mismatch };
    /// The answer to a probe (Frame::Kind::probe), by which a peer says that it waits for this rank.
    Answer answer_probe(int from, const Frame& frame);
    /// Checks a peer's notice that it has sent this rank all messages of its collective on that channel.
    void on_finished(int from, const Frame& frame);
    /// Compares the fingerprints of messages that arrived on a channel before this rank began the operation there.
    void check_unexpected(std::uint64_t channel, std::uint64_t fingerprint);
    /// This rank has finished the operation: reports a mismatch for each message on its channel that no receive
    /// matched.
    void check_surplus(std::uint64_t channel, std::uint64_t fingerprint);

 private:
    const Calls& calls_;
    const Matching& matching_;
    Findings& findings_;
};

}  // namespace tutti::transport
