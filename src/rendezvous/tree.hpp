// Tree: who is whose neighbour among the lifelines of a world, and the place of one rank in it.
//
// Threads: free functions any; a Tree one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
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

/// One of a rank's lifelines; numbers are not used again.
using LineId = std::uint64_t;
/// The other end of a lifeline, seen from this one. `beside`: this rank turned to it because ranks between them are
/// silent.
enum class Role : std::uint8_t { parent, child, beside };

struct Lifeline {
    int rank = -1;  ///< of the other end
    Role role = Role::child;
    bool confirmed = false;  ///< both ends have said `attached`
    bool answered = false;   ///< the other end knows that it is confirmed
    bool may_end = false;    ///< its end is no death
};

/// A rank's lifelines, and the ranks that count on it.
class Tree {
 public:
    Tree(int rank, int size);

    LineId attach(const Lifeline& line);
    void detach(LineId line) { lines_.erase(line); }
    /// Null: it has ended.
    Lifeline* find(LineId line);
    const std::map<LineId, Lifeline>& lines() const noexcept { return lines_; }
    bool is_connected(int rank) const;
    /// The neighbour behind which that rank lies, or it itself: the way to it among the ranks that are not gone.
    int direction_of(int rank) const;
    /// That child has come, or has another parent.
    void has_come(int rank) { awaited_.erase(rank); }
    /// The lifelines to parents are none any more: this rank has another, or needs none. Returns those that were.
    std::vector<LineId> release_parent();

    /// The rank has said goodbye. `told`: it had heard of the world's end before, and told its neighbours.
    void note_goodbye(int rank, bool told) {
        gone_[static_cast<std::size_t>(rank)] = true;
        told_[static_cast<std::size_t>(rank)] = told;
    }
    bool is_gone(int rank) const { return gone_[static_cast<std::size_t>(rank)]; }
    std::vector<int> neighbours_of(int rank) const { return rendezvous::neighbours_of(rank, gone_); }
    /// Ranks have come to be its children, or it another's, since others have left: perhaps they are not connected yet.
    bool has_new_neighbours(int rank) const;
    /// The neighbours that may not hear of the world's end, as this rank has no lifeline to them: those that it has, or
    /// would have, since ranks left which did not know of it. A child that has yet to come for the first time asks.
    std::vector<int> neighbours_to_tell() const;
    /// This rank's ancestors from the nearest, then all others from the lowest: always lower ranks, so that there are
    /// no circles.
    std::vector<int> possible_parents() const;
    /// A rank would be cut off if this one went now: a child that has not come yet, or that has no other parent yet.
    bool is_counted_on() const;

 private:
    int rank_;
    LineId next_ = 1;
    std::map<LineId, Lifeline> lines_;
    std::vector<bool> gone_, told_;
    std::set<int> awaited_;  // children that have not come yet
};

}  // namespace tutti::rendezvous
