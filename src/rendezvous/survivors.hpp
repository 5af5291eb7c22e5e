// Survivors: the ranks of a group that are still alive after a failure, as they agree in the store of the group.
//
// Each rank writes that it is present, and which ranks it knows to be dead. The lowest live rank writes the list when
// every other rank is present or dead; the first list that reaches the store is valid for all, so it does not matter if
// two ranks both believe to be the lowest. A rank whose timeout passes ends the attempt for all in the same way. The
// news of a death may not reach all ranks, and a rank may die unnoticed: so the others try to connect to missing ranks.
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"
#include "rendezvous/store_talk.hpp"

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti::rendezvous {

struct SurvivorsTerms {
    std::string group;         ///< its name
    std::vector<int> numbers;  ///< for each rank of the group: its number in the world, for messages
    int rank = 0;              ///< this one, in the group
    std::string keys;          ///< what the keys of this attempt begin with; equal on all ranks
    std::string store;         ///< the store in words
    Milliseconds timeout{0};
    std::optional<Milliseconds> patience{};  ///< as ShrinkOptions::patience
    std::function<std::vector<int>()> gone;  ///< the ranks that have died or left, as far as this one has heard
    std::function<bool(int)> is_deaf;        ///< whether a rank's process does not listen any more
    std::function<void()> check;             ///< called at every look; throws where the caller was interrupted

    int size() const noexcept { return static_cast<int>(numbers.size()); }
    std::vector<int> numbers_of(const std::vector<int>& ranks) const;
};

class Survivors {
 public:
    /// `store`: as StoreRequest::store.
    explicit Survivors(SurvivorsTerms terms, int store = 0);

    /// The surviving ranks of the group, ascending, this rank among them. Throws Timeout that names live ranks that
    /// have not called, PeerLost if the survivors continue without this rank, DistStoreError.
    StoreTalk<std::vector<int>> agree();
    const Deadline& deadline() const noexcept { return deadline_; }
    /// The time limit for the current request.
    Milliseconds limit() const;
    /// The text that completes "still waiting for".
    std::string awaited() const;

 private:
    StoreTalk<std::string> wait_for_result();
    StoreTalk<bool> say(const char* what, int rank);
    StoreTalk<bool> hear();
    StoreTalk<bool> look_after(std::vector<int> ranks);
    StoreTalk<std::string> settle(std::string outcome);
    std::vector<int> hear_of_the_gone();
    bool patience_is_over() const;
    Milliseconds pause(Milliseconds least, Milliseconds most) const;
    bool decides() const;
    int first_left() const;
    std::vector<int> missing() const;
    std::string list_of_those_here() const;
    std::vector<int> understood(const std::string& result) const;
    StoreRequest in_store(StoreRequest request) const;

    const SurvivorsTerms terms_;
    const int at_;
    Instant start_;
    Deadline deadline_;
    std::set<int> here_, gone_;
    Instant heard_;  ///< when this rank last began to read what all have said
    Instant next_look_;
};

}  // namespace tutti::rendezvous
