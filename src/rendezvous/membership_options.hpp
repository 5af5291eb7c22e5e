// MembershipOptions: a rank's input for joining a world, and its callbacks. "The constructor" means Membership's.
//
// Threads: a value; each function says which thread calls it.
#pragma once

#include "core/deadline.hpp"
#include "core/unique_fd.hpp"
#include "rendezvous/attempt.hpp"
#include "rendezvous/card.hpp"
#include "rendezvous/verdict.hpp"

#include <tutti/store.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti::rendezvous {

struct MembershipOptions {
    Store store;  ///< for this world alone, unless there is an `attempt`
    int rank = 0;
    int world_size = 1;
    Deadline deadline = Deadline::never();
    std::string listen_host;
    std::function<void(const Verdict&)> on_verdict;  ///< service thread
    /// Makes the card's note. The constructor calls it on rank 0, and on ranks that other hosts can reach.
    std::function<std::string()> note{};
    /// Rank 0 only, called by the constructor: turns all cards into a text that every rank gets.
    std::function<std::string(const std::vector<Card>&)> decide{};
    /// Called by the constructor with rank 0's decision, before this rank connects to others: so if all ranks throw
    /// because of the decision, none tries to reach a rank that has gone.
    std::function<void(const std::string& decision)> on_decision{};
    /// A process of this host asks for this rank's memory; the connection is closed afterwards. Service thread.
    std::function<void(const UniqueFd&)> on_memory_request{};
    /// These two go into this rank's card.
    std::uint64_t place_to_try = 0;
    std::string cannot_share{};
    /// Identifies this world if `store` holds several; else null. Set by the constructor, which it must outlive.
    Attempt* attempt = nullptr;
    std::string terms{};  ///< equal on all ranks; goes into this rank's card
    /// Called every 0.1 s while this rank waits for the others; an exception that it throws ends joining on all ranks.
    std::function<void()> check{};
};

}  // namespace tutti::rendezvous
