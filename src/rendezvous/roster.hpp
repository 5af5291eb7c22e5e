// Roster: the ranks of a world, from the table in the store, as seen by one of them: the result of joining. It tells
// how two ranks are related, and how TLS identifies a connection between them.
//
// Threads: a value; it does not change once the rank has joined.
#pragma once

#include "rendezvous/card.hpp"
#include "security/secret.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::rendezvous {

struct Roster {
    int rank = 0;                                    ///< this rank
    std::shared_ptr<const std::vector<Card>> cards;  ///< by rank; the ranks of a process share them
    std::string decision;                            ///< rank 0's, see MembershipOptions::decide
    std::uint64_t world = 0;                         ///< unique to this world, equal on all ranks
    security::Secret secret;

    int size() const noexcept { return static_cast<int>(cards->size()); }
    bool has(int other) const noexcept { return other >= 0 && other < size(); }
    const Card& card(int other) const { return (*cards)[static_cast<std::size_t>(other)]; }
    const Card& own() const { return card(rank); }
    /// Whether the rank is on this rank's host, see rendezvous::are_near().
    bool is_near(int other) const { return are_near(card(other), own()); }
    /// Whether this rank can watch the other's process by its id: it is near, and another process.
    bool can_watch(int other) const { return is_near(other) && card(other).process != own().process; }
    /// Whether connections to the rank are encrypted: TLS is on, and they leave the host.
    bool encrypts(int other) const;
    /// Whether all ranks can reach each other by loopback addresses.
    bool is_of_one_network() const;
    /// The TLS identity of a connection from one rank to another; the connection's key is derived from this text.
    std::string tls_identity(int from, int to) const;
    /// Whether `identity` names a connection to this rank, and this connection has to be encrypted.
    bool is_for_this_rank(std::string_view identity) const;
};

}  // namespace tutti::rendezvous
