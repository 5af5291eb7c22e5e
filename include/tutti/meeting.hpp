// meet(): the processes of a job come together in a store, without a group: each brings a card, any bytes, and all get
// the cards of all.
//
//     tutti::Met met = tutti::meet({.place = store, .name = "readers", .rank = rank, .size = 4}, address);
//     connect_to(met.cards[0]);
//
// Either all ranks of a meeting get the same cards, or all that come get the same sentence: some did not come in time,
// one could not come, one ended while it waited, they disagree, or they wait for each other in a circle. Nobody waits
// much beyond its own time.
//
// The same ranks may meet again under one name: whoever calls meet() once more comes to the next attempt. A rank that
// comes for the first time after an attempt failed is told so, once, unless the others have begun another one
// meanwhile.
//
// Threads: any; each call is one rank of one meeting. The calls wait for other processes: not in a callback of tutti.
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
    Store place;       ///< the ranks' own, or shared by many meetings: their keys begin with the name
    std::string name;  ///< tells meetings in one place apart; not empty
    int rank = 0;      ///< 0 to size - 1, another one on each rank
    int size = 1;      ///< how many come
    /// Counts from this rank's call; if the ranks' timeouts differ, the first that expires ends the attempt for all.
    Milliseconds timeout = default_store_timeout;
    /// Any bytes; ranks whose digest is not rank 0's disagree.
    std::string digest{};
    /// What this rank does, for sentences about it: "makes the group of [0, 1]". May differ.
    std::string words = "meets";
    /// Begin each sentence about this meeting: "new_group" and "of ranks [0, 1]". May differ.
    std::string operation = "meet", about{};
    /// Whether ranks meet only once under this name; a failure is final. Saves each rank a store request.
    bool once = false;
    /// By rank: its number among all ranks that have meetings in this place. If given, a rank that waits checks whether
    /// ranks of several meetings wait for each other in a circle. Empty: 0 to size - 1, and no such check.
    std::vector<int> members{};
    /// Called every 0.1 s while this rank waits; an exception ends the meeting, for the others with its message. May
    /// differ.
    std::function<void()> check{};
};

struct Met {
    std::vector<std::string> cards;  ///< of all ranks, by rank
    std::uint64_t attempt = 0;       ///< number of the attempt under this name, from 1; 0 with `once` or size 1
};

/// Returns when all ranks have come. Throws on all ranks that come Timeout (the first missing rank is context().peer),
/// PeerLost (one of them ended, or could not come), or InvalidArgument (they disagree, one came twice, or a circle); on
/// this rank alone InvalidArgument for terms that cannot be, and the store's errors.
TUTTI_API Met meet(const MeetingTerms& terms, const std::string& card);

/// Instead of meet(), on a rank that knows already that it cannot come: the others get `error`'s words. Takes a second
/// at most; a store that cannot be reached is not told.
TUTTI_API void say_cannot_meet(const MeetingTerms& terms, const std::exception& error) noexcept;

}  // namespace tutti
