// CallChecks: detects that two ranks have called different operations where no message meets a receive that shows it.
//
// Threads: one at a time.
#pragma once

#include "transport/findings.hpp"
#include "transport/matching.hpp"

#include <cstdint>

namespace tutti::transport {

/// The calls behind a mailbox's channels, as its owner knows them. Asked under the mailbox's lock.
class Calls {
 public:
    virtual ~Calls() = default;
    /// Whether this rank has left the group with that channel, or leaves it: no receive will come.
    virtual bool has_left(std::uint64_t /*channel*/) const { return false; }
    /// The fingerprint of this rank's collective on a channel; 0: it is not known (yet).
    virtual std::uint64_t fingerprint_of(std::uint64_t /*channel*/) const { return 0; }
    /// Whether a collective with that channel is over here: no receive will come.
    virtual bool has_finished(std::uint64_t /*channel*/) const { return false; }
    /// Whether all that goes to a peer on the channel of a collective has been given to its stream.
    virtual bool has_sent_all(int /*peer*/, std::uint64_t /*channel*/) const { return false; }
};

class CallChecks {
 public:
    /// All must outlive it.
    CallChecks(const Calls& calls, const Matching& matching, Findings& findings)
        : calls_(calls), matching_(matching), findings_(findings) {}

    bool has_left(std::uint64_t channel) const { return calls_.has_left(channel); }
    /// A message that no receive waits for. False: it shows that its sender does something else.
    bool allows_unmet(int from, const Frame& frame);
    enum class Answer : std::uint8_t { none, refused, finished, mismatch };
    /// What to answer a peer that waits for this rank (Frame::Kind::probe).
    Answer answer_probe(int from, const Frame& frame);
    /// The peer has sent all messages of its collective on that channel that are for this rank.
    void on_finished(int from, const Frame& frame);
    /// Compares the messages that came on a channel before its operation began here.
    void check_unexpected(std::uint64_t channel, std::uint64_t fingerprint);
    /// The operation is over: a message that came on its channel and met no receive is a mismatch.
    void check_surplus(std::uint64_t channel, std::uint64_t fingerprint);

 private:
    const Calls& calls_;
    const Matching& matching_;
    Findings& findings_;
};

}  // namespace tutti::transport
