// Ledger: which neighbours have still to answer for which piece of news.
//
// A rank that passes news on asks its neighbours for an answer. A neighbour says at once that it has them, and answers
// when all those to whom it passed them on have answered. So the rank that began knows when everybody who can be
// reached has been told, and a neighbour that shows no sign of life is noticed by those beside it.
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace tutti::rendezvous {

class Ledger {
 public:
    using Id = std::uint64_t;
    static constexpr int own = -1;  ///< whom this rank's own news come from

    struct Answer {
        int to = own;
        Id id = 0;
    };

    /// This rank has it from a neighbour, or from itself, and owes an answer.
    void open(Id id, int teller) { pieces_[id] = {.teller = teller}; }
    /// A neighbour is told; not a second time.
    void ask(Id id, int neighbour, Instant now);
    /// A neighbour is told everything for which this rank owes an answer.
    void ask_all(int neighbour, Instant now);
    /// This rank has done its own part.
    void told(Id id);
    /// The neighbour has it.
    void has(Id id, int neighbour, Instant now);
    /// The neighbour has it, and so have all to whom it passed it on.
    void answered(Id id, int neighbour, Instant now);
    /// Nothing more is expected of it.
    void drop(int neighbour);

    /// What this rank can answer now.
    std::vector<Answer> take_answers();
    /// Neighbours that have shown no sign of life since they were told something.
    const std::map<int, Instant>& unheard() const noexcept { return since_; }
    /// Everybody who can be reached has this rank's own news.
    bool settled() const;

 private:
    struct Piece {
        int teller = own;
        bool told = false;
        std::set<int> told_to;  // neighbours, once and for all
        std::set<int> asked;    // of these, those that have not answered
    };
    std::map<Id, Piece> pieces_;
    std::map<int, std::set<Id>> unheard_;
    std::map<int, Instant> since_;
};

}  // namespace tutti::rendezvous
