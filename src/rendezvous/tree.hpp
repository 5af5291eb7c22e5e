// Tree: the neighbours of each rank among the lifelines of a world. Free functions; any thread.
#pragma once

#include <vector>

namespace tutti::rendezvous {

/// The parent in the binomial tree of all ranks; of 0, itself.
constexpr int parent_of(int rank) {
    return rank & (rank - 1);
}

/// The nearest of its ancestors that is not gone, else the lowest rank that is not; -1: it is that rank itself.
int parent_of(int rank, const std::vector<bool>& gone);

/// Its parent and its children among the ranks that are not gone.
std::vector<int> neighbours_of(int rank, const std::vector<bool>& gone);

}  // namespace tutti::rendezvous
