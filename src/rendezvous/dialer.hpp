// Dialer: connects to the endpoints of other ranks: for data, for lifelines (tree.hpp), and for their memory.
//
// Threads: any.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/unique_fd.hpp"
#include "rendezvous/hello.hpp"
#include "rendezvous/roster.hpp"
#include "security/wire.hpp"

#include <tutti/error.hpp>

namespace tutti::rendezvous {

/// Whether the peer of a Unix socket is the card's process, run by this user.
bool runs_at_other_end(const Card& card, const UniqueFd& fd);

class Dialer {
 public:
    /// The roster must outlive it.
    explicit Dialer(const Roster& roster) : roster_(roster) {}

    /// A new connection on which this rank sends data; both ends have proved the secret.
    security::Connection connect(int rank, const Deadline& deadline, const AbortFlag* abort) const;
    /// A lifeline on which the peer has sent `attached`: the peer is there, and is not about to leave.
    security::Connection attach(int rank, const Deadline& deadline, const AbortFlag* abort) const;
    /// A lifeline to a rank of this host, without waiting until the peer accepts it: the peer later finds this rank's
    /// Hello in it, even if this rank has died. Empty if this rank cannot reach a local endpoint of the peer.
    UniqueFd attach_unseen(int rank) const;
    /// A connection that asks a rank of this host for its memory. DistNetworkError if the rank cannot be reached.
    UniqueFd request_memory(int rank, const Deadline& deadline, const AbortFlag* abort) const;

 private:
    UniqueFd connect_local(int rank) const;
    security::Connection dial(int rank, Hello::Purpose purpose, const Deadline& deadline, const AbortFlag* abort) const;
    void await_attached(int fd, security::Wire& wire, const Deadline& deadline, const AbortFlag* abort) const;
    security::Wire prove(int rank, int fd, const Deadline& deadline, const AbortFlag* abort) const;
    DistNetworkError unsafe(int rank, const DistNetworkError& cause) const;
    Hello hello(Hello::Purpose purpose) const { return {roster_.world, purpose, roster_.rank}; }

    const Roster& roster_;
};

}  // namespace tutti::rendezvous
