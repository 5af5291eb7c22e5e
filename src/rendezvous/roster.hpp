// Roster: the ranks of a world, as the table in the store lists them, read by one of them: the result of joining. It
// says how two ranks stand to each other, and what a connection between them is called.
//
// Threads: a value; it does not change once the rank has joined.
#pragma once

#include "rendezvous/card.hpp"
#include "security/secret.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::rendezvous {

struct Roster {
    int rank = 0;  ///< the one that reads it
    std::vector<Card> cards;
    std::string decision;     ///< rank 0's, see MembershipOptions::decide
    std::uint64_t world = 0;  ///< unique to this world, equal on all ranks
    security::Secret secret;

    int size() const noexcept { return static_cast<int>(cards.size()); }
    bool has(int other) const noexcept { return other >= 0 && other < size(); }
    const Card& card(int other) const { return cards[static_cast<std::size_t>(other)]; }
    const Card& own() const { return card(rank); }
    /// On this rank's host, see are_near().
    bool is_near(int other) const { return are_near(card(other), own()); }
    /// Its process means something here, and is another one.
    bool can_watch(int other) const { return is_near(other) && card(other).process != own().process; }
    /// Whether connections to a rank leave the host, and are encrypted.
    bool encrypts(int other) const;
    /// All ranks reach each other by loopback addresses.
    bool is_of_one_network() const;
    /// The identity of a connection by TLS from one rank to another; its key is derived for these very words.
    std::string tls_identity(int from, int to) const;
    /// Whether it is that of a connection to this rank which has to be encrypted.
    bool is_for_this_rank(std::string_view identity) const;
};

}  // namespace tutti::rendezvous
