// MembershipOptions: what a rank brings along to join a world, and what it wants to hear of it.
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
    /// The note for this rank's card, in the constructor. Called on rank 0, and on ranks that other hosts can reach.
    std::function<std::string()> note{};
    /// Rank 0, in the constructor: from all cards to a text that goes to every rank.
    std::function<std::string(const std::vector<Card>&)> decide{};
    /// In the constructor, before this rank connects to others: rank 0's decision. Where all ranks throw because of it,
    /// none looks for another that has gone.
    std::function<void(const std::string& decision)> on_decision{};
    /// A process of this host asks for this rank's memory; the connection is closed afterwards. Service thread.
    std::function<void(const UniqueFd&)> on_memory_request{};
    /// For this rank's card.
    std::uint64_t place_to_try = 0;
    std::string cannot_share{};
    /// The worlds among which this one is; outlives the constructor, and is this world's after it.
    Attempt* attempt = nullptr;
    std::string terms{};  ///< for this rank's card
};

}  // namespace tutti::rendezvous
