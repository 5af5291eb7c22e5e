// Dialer: makes connections to the endpoints of other ranks.
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

/// Whether the process of that card, of this user, has the other end of a Unix socket.
bool runs_at_other_end(const Card& card, const UniqueFd& fd);

class Dialer {
 public:
    /// The roster must outlive it.
    explicit Dialer(const Roster& roster) : roster_(roster) {}

    /// A fresh, proved connection on which this rank sends data.
    security::Connection connect(int rank, const Deadline& deadline, const AbortFlag* abort) const;
    /// A lifeline on which the other end has said `attached`: it is there, and does not leave just now.
    security::Connection attach(int rank, const Deadline& deadline, const AbortFlag* abort) const;
    /// A lifeline to a rank of this host, without waiting until it has looked: it finds there what this end says, even
    /// if this rank dies. Nothing where the rank has no local endpoint, or is on another host.
    UniqueFd attach_unseen(int rank) const;
    /// A connection to a rank of this host that asks for its memory. DistNetworkError if there is no way to it.
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
