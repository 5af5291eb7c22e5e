// RankContext: the state of one group on one rank that all its collectives use. Threads: one at a time (the group's
// lock).
#pragma once

#include "core/assert.hpp"
#include "core/huge_pages.hpp"
#include "transport/mailbox.hpp"
#include "transport/shm/arena.hpp"
#include "transport/shm/peer_memory.hpp"
#include "transport/shm/staging_copy.hpp"
#include "transport/shm/symmetric.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tutti::engine {

struct RankContext {
    transport::Mailbox* mailbox = nullptr;
    transport::Arena* arena = nullptr;  ///< null: no shared memory
    const transport::SymmetricMemory* symmetric = nullptr;
    transport::StagingCopy* staging_copy = nullptr;  ///< null: memcpy
    HugePages* huge_pages = nullptr;                 ///< learns which buffers operations use; may be null
    /// Access to the memory of a rank of this host, by mailbox rank; empty: the kernel does not let ranks copy from
    /// each other.
    std::function<const transport::PeerMemory*(int rank)> memory;
    std::vector<int> world_of;            ///< mailbox rank of each rank; empty: equal to the rank
    int rank = 0;                         ///< this rank
    std::uint64_t channel = 0;            ///< the bits that all channels of this group's collectives have in common
    int local_rank = 0;                   ///< this rank's number in the arena
    std::vector<int> local_of;            ///< arena rank of each rank of this host, -1 elsewhere
    std::uint64_t first_publication = 0;  ///< the next schedule's; equal on all ranks of a host
    /// By place in the staging area: whether the last access was a read by this rank.
    std::vector<bool> read_last;

    /// Converts a rank of the group to the rank by which the mailbox knows it.
    int in_mailbox(int peer) const {
        TUTTI_ASSERT(world_of.empty() || static_cast<std::size_t>(peer) < world_of.size());
        return world_of.empty() ? peer : world_of[static_cast<std::size_t>(peer)];
    }
    /// Calls f(rank, arena rank) for every other rank of this host, in rank order.
    template <class F>
    void for_each_neighbour(F f) const {
        for (std::size_t r = 0; r < local_of.size(); ++r) {
            if (const int local = local_of[r]; local >= 0 && local != local_rank) f(static_cast<int>(r), local);
        }
    }
};

}  // namespace tutti::engine
