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

Tree::Tree(int rank, int size) : rank_(rank), gone_(static_cast<std::size_t>(size)), told_(gone_) {
    for (int other = rank + 1; other < size; ++other) {
        if (parent_of(other) == rank) awaited_.insert(other);
    }
}

LineId Tree::attach(const Lifeline& line) {
    lines_.emplace(next_, line);
    return next_++;
}

Lifeline* Tree::find(LineId line) {
    const auto found = lines_.find(line);
    return found == lines_.end() ? nullptr : &found->second;
}

bool Tree::is_connected(int rank) const {
    return std::ranges::any_of(lines_, [rank](const auto& entry) { return entry.second.rank == rank; });
}

int Tree::direction_of(int rank) const {
    std::vector<bool> gone = gone_;
    gone[static_cast<std::size_t>(rank_)] = false;
    for (int below = rank; below >= 0;) {
        const int above = rendezvous::parent_of(below, gone);
        if (above == rank_) return below;
        below = above;
    }
    return rendezvous::parent_of(rank_, gone);
}

std::vector<LineId> Tree::release_parent() {
    std::vector<LineId> released;
    for (auto& [id, line] : lines_) {
        if (line.role != Role::parent) continue;
        line.role = Role::beside;
        line.may_end = true;
        released.push_back(id);
    }
    return released;
}

bool Tree::has_new_neighbours(int rank) const {
    return std::ranges::any_of(neighbours_of(rank),
                               [rank](int other) { return parent_of(std::max(rank, other)) != std::min(rank, other); });
}

// One that left when it knew of the end keeps its place: it has told those around it.
std::vector<int> Tree::neighbours_to_tell() const {
    std::vector<bool> missing(gone_.size());
    for (std::size_t rank = 0; rank < missing.size(); ++rank) missing[rank] = gone_[rank] && !told_[rank];
    missing[static_cast<std::size_t>(rank_)] = false;
    std::vector<int> neighbours = rendezvous::neighbours_of(rank_, missing);
    std::erase_if(neighbours,
                  [this](int other) { return is_gone(other) || is_connected(other) || awaited_.contains(other); });
    return neighbours;
}

std::vector<int> Tree::possible_parents() const {
    std::vector<int> parents;
    const auto add = [&](int rank) {
        if (!is_gone(rank) && std::ranges::find(parents, rank) == parents.end()) parents.push_back(rank);
    };
    for (int rank = rank_; rank != 0;) add(rank = parent_of(rank));
    for (int rank = 0; rank < rank_; ++rank) add(rank);
    return parents;
}

bool Tree::is_counted_on() const {
    return !awaited_.empty() || std::ranges::any_of(lines_, [](const auto& entry) {
        return entry.second.role != Role::parent && !entry.second.may_end;
    });
}

}  // namespace tutti::rendezvous
