// meet(): the processes of a job meet in a store, without a group: each rank contributes a card (any bytes), and every
// rank gets all cards.
//
//     tutti::Met met = tutti::meet({.place = store, .name = "readers", .rank = rank, .size = 4}, address);
//     connect_to(met.cards[0]);
//
// Either all ranks of a meeting get the same cards, or all ranks that call get the same error: some ranks did not come
// in time, one could not come, one ended while it waited, they disagree, or they wait for each other in a circle. No
// rank waits much longer than its own timeout.
//
// The same ranks may meet again under one name: each further call of meet() joins the next attempt. A rank whose first
// call comes after a failed attempt gets the error of that attempt, once, unless the others have begun another attempt
// meanwhile.
//
// Threads: any; each call is one rank of one meeting. The calls wait for other processes: do not call them in a
// callback of tutti.
#pragma once

#include <tutti/export.hpp>
#include <tutti/store.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace tutti {

/// The ranks that meet, and their place. Each field has to be equal on all ranks, unless its comment says otherwise.
struct MeetingTerms {
    Store place;       ///< the store; meetings may share it: their keys begin with the name
    std::string name;  ///< tells meetings in one place apart; not empty
    int rank = 0;      ///< 0 to size - 1, unique
    int size = 1;      ///< number of ranks
    /// Counts from this rank's call; if the ranks' timeouts differ, the first that expires ends the attempt for all.
    Milliseconds timeout = default_store_timeout;
    /// Any bytes; if a rank's digest differs from rank 0's, the ranks disagree, and all get InvalidArgument.
    std::string digest{};
    /// What this rank does, for messages: "makes the group of [0, 1]". May differ.
    std::string words = "meets";
    /// The first words of each message about this meeting: "new_group" and "of ranks [0, 1]". May differ.
    std::string operation = "meet", about{};
    /// Whether ranks meet only once under this name; a failure is final. Saves each rank a store request.
    bool once = false;
    /// For each rank of the meeting, in order: its number among all ranks that meet in this place. If given, a rank
    /// that waits checks whether ranks of several meetings wait for each other in a circle. Empty: 0 to size - 1, and
    /// no such check.
    std::vector<int> members{};
    /// Called every 0.1 s while this rank waits; an exception that it throws ends the meeting on all ranks, and the
    /// other ranks' errors contain its message. May differ.
    std::function<void()> check{};
};

struct Met {
    std::vector<std::string> cards;  ///< every rank's card, by rank
    std::uint64_t attempt = 0;       ///< number of the attempt under this name, from 1; 0 with `once` or size 1
};

/// Returns when all ranks have called it. Throws, on all ranks that call it, Timeout (context().peer is the first
/// missing rank), PeerLost (a rank ended, or could not come), or InvalidArgument (the ranks disagree, one came twice,
/// or they wait in a circle); on this rank alone, InvalidArgument for impossible terms, and the store's errors.
TUTTI_API Met meet(const MeetingTerms& terms, const std::string& card);

/// Call this instead of meet() on a rank that cannot come: the other ranks' errors contain `error`'s message. Blocks
/// for at most a second; does nothing if the store cannot be reached.
TUTTI_API void say_cannot_meet(const MeetingTerms& terms, const std::exception& error) noexcept;

}  // namespace tutti
