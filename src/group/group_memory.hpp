// GroupMemory: the memory that the ranks of a group share on this host: the group's part of the world's arena, and
// symmetric memory, in which users' buffers may lie.
//
// Threads: add_symmetric() and make_symmetric() take the world's lock; leave() needs it; everything else is constant or
// atomic.
#pragma once

#include "backend/registry.hpp"
#include "core/biased_mutex.hpp"
#include "core/unique_fd.hpp"
#include "operation/ranks.hpp"
#include "transport/shm/arena.hpp"
#include "transport/shm/neighbours.hpp"
#include "transport/shm/symmetric.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace tutti::detail {

class GroupMemory {
 public:
    /// For a group whose ranks are on the hosts `host_of`, with its part of the world's arena at `offset`. `backends`:
    /// if another backend serves host memory, the group has no shared memory. `lock`: the world's. `neighbours` and
    /// `lock` must outlive this.
    GroupMemory(const Ranks& ranks, const std::vector<int>& host_of, std::uint64_t offset,
                const backend::Devices& backends, transport::Neighbours& neighbours, BiasedMutex& lock);
    /// An upper bound of the shared memory, in bytes, that a group of `members` (of the world, whose ranks are on the
    /// hosts `host_of`) takes on each host; equal on all ranks.
    static std::uint64_t part_bytes(const std::vector<int>& host_of, std::span<const int> members);

    /// Null: this rank shares no memory in this group.
    transport::Arena* arena() const noexcept { return arena_.get(); }
    /// The group's ranks on this host, ascending; the arena rank is the index in this list.
    const std::vector<int>& ranks_here() const noexcept { return ranks_here_; }
    /// The arena rank of each rank; -1: on another host.
    const std::vector<int>& locals() const noexcept { return locals_; }
    int local_of(int rank) const noexcept { return locals_[static_cast<std::size_t>(rank)]; }
    int own_local() const noexcept { return own_local_; }
    bool is_shared_with(int rank) const noexcept { return arena_ && locals_[static_cast<std::size_t>(rank)] >= 0; }
    /// Whether all ranks share the arena, and the group itself runs its collectives on host memory.
    bool is_of_all() const noexcept {
        return arena_ && ranks_here_.size() == locals_.size() && !serves_bytes_beside_backends_;
    }
    /// This rank no longer reads or writes there; announces that to the other ranks.
    void leave() noexcept;
    /// Whether `rank` has called leave().
    bool is_left_by(int rank) const noexcept;

    /// Whether several ranks of this host share memory; equal on all of them.
    bool has_symmetric() const noexcept { return arena_ && ranks_here_.size() > 1; }
    /// Passes the descriptors of the first of `ranks` (of the world) to the others. `number`: identifies the memory;
    /// equal on all of `ranks`.
    using PassOn = std::function<void(std::uint64_t number, std::span<const int> ranks, std::span<UniqueFd> fds)>;
    /// Makes memory with a part of `bytes` for each rank of this host; all of them call it.
    std::shared_ptr<transport::SymmetricSegment> make_symmetric(std::size_t bytes, const PassOn& pass_on);
    /// Makes the segment known to collectives. Call it after all ranks of the host have made the segment.
    void add_symmetric(std::shared_ptr<transport::SymmetricSegment> segment);
    /// The symmetric memory in which collectives look for buffers; null: there is none.
    const transport::SymmetricMemory* symmetric() const noexcept { return has_symmetric() ? symmetric_ : nullptr; }
    /// Whether collectives issued from now on may find their buffers in symmetric memory. Equal on all ranks.
    bool uses_symmetric() const noexcept { return uses_symmetric_.load(std::memory_order_relaxed); }

 private:
    BiasedMutex& lock_;
    const bool is_part_;
    const bool serves_bytes_beside_backends_;  // no backend serves host memory: calls on bytes are never short
    std::shared_ptr<transport::Arena> arena_;
    std::vector<int> ranks_here_, locals_, globals_here_;
    int own_local_ = 0;
    bool left_ = false;
    transport::SymmetricMemory own_symmetric_;
    transport::SymmetricMemory* symmetric_;  // for the group of all ranks the world's, which messages use too
    std::atomic<bool> uses_symmetric_{false};
    std::uint64_t segments_ = 0;  // made so far; equal on all ranks of the host
};

}  // namespace tutti::detail
