#include "rendezvous/tree.hpp"

#include <algorithm>
#include <iterator>

namespace tutti::rendezvous {
namespace {

/// Calls `act` with the children of `rank` in the binomial tree of `size` ranks, lowest first.
template <class Act>
void for_each_child(int rank, int size, const Act& act) {
    for (std::int64_t bit = 1; (rank & bit) == 0 && rank + bit < size; bit *= 2) act(static_cast<int>(rank + bit));
}

// The nearest ranks below `rank` that are not gone.
void add_children(int rank, const std::vector<bool>& gone, std::vector<int>& children) {
    for_each_child(rank, static_cast<int>(gone.size()), [&](int child) {
        if (gone[static_cast<std::size_t>(child)])
            add_children(child, gone, children);
        else
            children.push_back(child);
    });
}

}  // namespace

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
    const int parent = parent_of(rank, gone);
    if (parent >= 0) neighbours.push_back(parent);
    if (gone[static_cast<std::size_t>(rank)]) return neighbours;
    add_children(rank, gone, neighbours);
    // The lowest has those too whose ancestors have all gone.
    if (parent < 0 && rank != 0) {
        add_children(0, gone, neighbours);
        std::erase(neighbours, rank);
    }
    std::ranges::sort(neighbours.begin() + (parent >= 0 ? 1 : 0), neighbours.end());
    return neighbours;
}

Tree::Tree(int rank, int size) : rank_(rank), gone_(static_cast<std::size_t>(size)), gone_untold_(gone_) {
    for_each_child(rank, size, [this](int child) { awaited_.insert(child); });
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

// This rank itself is there, also while it leaves.
int Tree::direction_of(int rank) const {
    const auto above = [this](int below) {
        for (int ancestor = below; ancestor != 0;) {
            ancestor = parent_of(ancestor);
            if (ancestor == rank_ || !is_gone(ancestor)) return ancestor;
        }
        const int lowest = std::min(rank_, static_cast<int>(std::ranges::find(gone_, false) - gone_.begin()));
        return lowest < below ? lowest : -1;
    };
    for (int below = rank; below >= 0;) {
        const int parent = above(below);
        if (parent == rank_) return below;
        below = parent;
    }
    return above(rank_);
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
    std::vector<int> neighbours = rendezvous::neighbours_of(rank_, gone_untold_);
    std::erase_if(neighbours,
                  [this](int other) { return is_gone(other) || is_connected(other) || awaited_.contains(other); });
    return neighbours;
}

std::vector<int> Tree::possible_parents() const {
    std::vector<int> ancestors, parents;
    for (int rank = rank_; rank != 0;) ancestors.push_back(rank = parent_of(rank));
    std::ranges::copy_if(ancestors, std::back_inserter(parents), [this](int rank) { return !is_gone(rank); });
    for (int rank = 0; rank < rank_; ++rank) {
        if (!is_gone(rank) && std::ranges::find(ancestors, rank) == ancestors.end()) parents.push_back(rank);
    }
    return parents;
}

bool Tree::is_counted_on() const {
    return !awaited_.empty() || std::ranges::any_of(lines_, [](const auto& entry) {
        return entry.second.role != Role::parent && !entry.second.may_end;
    });
}

}  // namespace tutti::rendezvous
