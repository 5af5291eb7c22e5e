#include "rendezvous/tree.hpp"

#include <algorithm>

namespace tutti::rendezvous {

int parent_of(int rank, const std::vector<bool>& gone) {
    for (int ancestor = rank; ancestor != 0;) {
        ancestor = parent_of(ancestor);
        if (!gone[static_cast<std::size_t>(ancestor)]) return ancestor;
    }
    const int lowest = static_cast<int>(std::ranges::find(gone, false) - gone.begin());
    return lowest < rank ? lowest : -1;
}

std::vector<int> neighbours_of(int rank, const std::vector<bool>& gone) {
    std::vector<int> neighbours;
    if (const int parent = parent_of(rank, gone); parent >= 0) neighbours.push_back(parent);
    for (int other = 0; other < static_cast<int>(gone.size()); ++other) {
        if (other != rank && !gone[static_cast<std::size_t>(other)] && parent_of(other, gone) == rank)
            neighbours.push_back(other);
    }
    return neighbours;
}

}  // namespace tutti::rendezvous
