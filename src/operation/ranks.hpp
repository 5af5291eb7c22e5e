// Ranks: the ranks of a group, and which ranks of the world they are.
//
// A value that never changes. Threads: any.
#pragma once

#include "core/assert.hpp"

#include <cstddef>
#include <vector>

namespace tutti::detail {

class Ranks {
 public:
    /// `in_world`: the group's ranks as ranks of the world, in the order of the group; empty: all `world_size` of them.
    /// `own`: this rank in the world, which is one of them.
    Ranks(std::vector<int> in_world, int own, int world_size);

    /// This process's rank in the group.
    int rank() const noexcept { return rank_; }
    /// This process's rank in the world.
    int own_global() const noexcept { return own_; }
    int size() const noexcept { return size_; }
    /// Whether the group has all ranks of the world, in the world's order.
    bool are_all() const noexcept { return are_all_; }

    /// The rank in the world of a rank of the group; negative ranks (any source, none) are returned unchanged.
    int global(int rank) const noexcept {
        TUTTI_ASSERT(rank < size_);
        return are_all_ || rank < 0 ? rank : in_world_[static_cast<std::size_t>(rank)];
    }
    std::vector<int> global(const std::vector<int>& ranks) const;
    /// The rank in the group of a rank of the world; -1: it is not a member.
    int rank_of(int global) const noexcept {
        if (are_all_) return global >= 0 && global < size_ ? global : -1;
        return find(global);
    }
    /// The ranks in the group of those ranks of the world that are members.
    std::vector<int> ranks_of(const std::vector<int>& globals) const;
    /// The ranks in the world of all members, by group rank.
    std::vector<int> all() const;
    /// As all(); empty if the group has all ranks of the world.
    const std::vector<int>& in_world() const noexcept { return in_world_; }

 private:
    int find(int global) const noexcept;

    std::vector<int> in_world_;
    bool are_all_;
    int own_, size_, rank_;
};

}  // namespace tutti::detail
