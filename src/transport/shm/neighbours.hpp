// Neighbours: the ranks of this host, and how each reaches the memory of the others: through the shared arena, the
// symmetric memory that they map, and, if the kernel allows it, the memory of each other's processes.
//
// Threads: one at a time (the world's lock). The members that the constructor fills in never change.
#pragma once

#include "core/assert.hpp"
#include "transport/shm/arena.hpp"
#include "transport/shm/offers.hpp"
#include "transport/shm/peer_memory.hpp"
#include "transport/shm/symmetric.hpp"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tutti::transport {

/// Whether the ranks of a host may read each other's process memory. Equal on all of them.
enum class Reads : bool { no, yes };

class Neighbours {
 public:
    /// `size`: of the world; `ranks`: the ranks of this host, ascending, including `rank`; `processes`: the process ids
    /// of `ranks`. `arena`: null if the ranks share no memory.
    Neighbours(int rank, int size, std::vector<int> ranks, std::vector<pid_t> processes, std::shared_ptr<Arena> arena,
               Reads reads);

    /// The ranks of this host, ascending. A rank's index in this list is its arena rank.
    const std::vector<int>& ranks() const noexcept { return ranks_; }
    /// The arena rank of `rank`; -1: it is on another host.
    int local_of(int rank) const noexcept {
        TUTTI_ASSERT(static_cast<std::size_t>(rank) < local_of_.size());
        return local_of_[static_cast<std::size_t>(rank)];
    }
    int own_local() const noexcept { return own_local_; }
    const std::shared_ptr<Arena>& arena() const noexcept { return arena_; }
    bool share_memory_with(int rank) const noexcept { return arena_ && local_of(rank) >= 0; }
    /// Whether all ranks of the world share the arena.
    bool are_all() const noexcept { return arena_ && ranks_.size() == local_of_.size(); }
    bool read_memory() const noexcept { return reads_ == Reads::yes; }

    /// The process memory of a rank; null: this rank cannot read it.
    const PeerMemory* memory_of(int rank) const;
    /// The place of `message` in symmetric memory that `rank` maps too (Place::bits()); 0: it does not lie there.
    std::uint64_t place(int rank, std::span<const std::byte> message) const;
    /// The `bytes` bytes at the place that `rank` named; null if there are none.
    const std::byte* at_place(int rank, std::uint64_t place, std::size_t bytes) const;
    /// Runs `read`, which reads a piece of a message that `rank` offers. False: `rank` has withdrawn it.
    template <class Read>
    bool read_offered(int rank, Read read) const {
        TUTTI_ASSERT(offers_ && local_of(rank) >= 0);
        return offers_->read_from(local_of(rank), std::move(read));
    }
    /// Withdraws all that this rank offers, for good.
    void withdraw_offers() noexcept;
    /// The symmetric memory in which buffers of the group of all ranks may lie.
    SymmetricMemory& symmetric() noexcept { return symmetric_; }

 private:
    int own_local_ = 0;
    std::vector<int> ranks_, local_of_;
    std::vector<pid_t> processes_;
    std::shared_ptr<Arena> arena_;
    Reads reads_;
    mutable std::vector<std::optional<PeerMemory>> memories_;  // by arena rank, opened on first use
    std::optional<Offers> offers_;                             // set if the ranks share memory
    SymmetricMemory symmetric_;
};

}  // namespace tutti::transport
