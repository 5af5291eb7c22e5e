// Tree: which ranks of a world are neighbours, connected by lifelines, and the place of one rank in the tree.
//
// Threads: free functions any; a Tree one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace tutti::rendezvous {

/// The parent of a rank in the binomial tree of all ranks; for rank 0, itself.
constexpr int parent_of(int rank) {
    return rank & (rank - 1);
}

/// `gone`: by rank, whether it has left. The rank's nearest ancestor that is not gone, else the lowest rank that is
/// not; -1: no rank below `rank` is left.
int parent_of(int rank, const std::vector<bool>& gone);

/// The parent and the children of `rank` in the tree without the ranks that are gone.
std::vector<int> neighbours_of(int rank, const std::vector<bool>& gone);

/// One of a rank's lifelines; numbers are never reused.
using LineId = std::uint64_t;
/// What the other end of a lifeline is to this rank. `beside`: a former parent, or a rank to which this one connected
/// because the ranks between them are silent.
enum class Role : std::uint8_t { parent, child, beside };

struct Lifeline {
    int rank = -1;  ///< at the other end
    Role role = Role::child;
    bool confirmed = false;  ///< this rank has received `attached` from the other end
    bool answered = false;   ///< the other end has acknowledged this rank's `attached`
    bool may_end = false;    ///< its end is not a death
};

/// A rank's lifelines, and the ranks that depend on it.
class Tree {
 public:
    Tree(int rank, int size);

    LineId attach(const Lifeline& line);
    void detach(LineId line) { lines_.erase(line); }
    /// Null: it has ended.
    Lifeline* find(LineId line);
    const std::map<LineId, Lifeline>& lines() const noexcept { return lines_; }
    bool is_connected(int rank) const;
    /// The neighbour through which `rank` is reached, or `rank` itself if it is one, among the ranks that are not gone.
    int direction_of(int rank) const;
    /// The child `rank` has connected, or has another parent.
    void has_come(int rank) { awaited_.erase(rank); }
    /// Lifelines to parents stop being such: this rank has another parent, or needs none. Returns these lifelines.
    std::vector<LineId> release_parent();

    /// The rank has said goodbye. `told`: it had heard of the world's end before, and told its neighbours.
    void note_goodbye(int rank, bool told) {
        gone_[static_cast<std::size_t>(rank)] = true;
        gone_untold_[static_cast<std::size_t>(rank)] = !told && rank != rank_;
    }
    bool is_gone(int rank) const { return gone_[static_cast<std::size_t>(rank)]; }
    std::vector<int> neighbours_of(int rank) const { return rendezvous::neighbours_of(rank, gone_); }
    /// Whether `rank` has a new parent or child because others have left: they may not be connected yet.
    bool has_new_neighbours(int rank) const;
    /// Neighbours without a lifeline to this rank, which may not hear of the world's end: those of the tree without the
    /// ranks that left before they knew of it. Not children that have yet to connect: they will ask.
    std::vector<int> neighbours_to_tell() const;
    /// This rank's ancestors, nearest first, then all other lower ranks, lowest first. Only lower ranks, so that there
    /// are no cycles.
    std::vector<int> possible_parents() const;
    /// A rank would be cut off if this one left now: a child that has not connected, or has no other parent yet.
    bool is_counted_on() const;

 private:
    int rank_;
    LineId next_ = 1;
    std::map<LineId, Lifeline> lines_;
    std::vector<bool> gone_;
    std::vector<bool> gone_untold_;  // of the others, before they had heard of the world's end
    std::set<int> awaited_;          // children that have not connected yet
};

}  // namespace tutti::rendezvous
