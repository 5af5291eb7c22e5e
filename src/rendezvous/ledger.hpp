// Ledger: which neighbours have yet to answer for which piece of news.
//
// A rank that passes news on asks its neighbours for an answer. A neighbour acknowledges them at once, and answers when
// all ranks to which it passed them on have answered. So the rank that began knows when every rank that can be reached
// has the news, and the ranks beside a silent neighbour notice it.
//
// A rank that turns to this one around a silent rank asks too: the silent one may have brought the news here and can no
// longer pass the answer on. It waits for the ranks behind this rank, not for those in its own direction, to which it
// turns itself: otherwise ranks around a silent one would wait for each other.
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"
#include "rendezvous/news_frame.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

namespace tutti::rendezvous {

class Ledger {
 public:
    using Id = NewsId;
    static constexpr int own = -1;     ///< the source of this rank's own news
    static constexpr int nobody = -2;  ///< of news for which this rank has given its answer

    struct Answer {
        int to = own;
        Id id = 0;
    };

    /// This rank has the news from a neighbour, or from itself, and owes an answer.
    void open(Id id, int source);
    /// It may have answered already, and is about to ask another neighbour.
    void reopen(Id id) { pieces_.try_emplace(id, Piece{.source = nobody, .done = true}); }
    /// A neighbour that did not bring the news asks for them too, unless this rank has given its answer.
    void owe_too(Id id, int neighbour);
    /// It owes that neighbour an answer.
    bool owes(Id id, int neighbour) const;
    /// This rank passes it on to a neighbour; not a second time.
    void ask(Id id, int neighbour, Instant now);
    /// This rank passes all news on for which it owes an answer.
    void ask_all(int neighbour, Instant now);
    /// This rank has done its own part.
    void done(Id id);
    /// The neighbour has it.
    void acknowledged(Id id, int neighbour, Instant now);
    /// The neighbour has it, and so have all ranks to which it passed it on.
    void answered(Id id, int neighbour, Instant now);
    /// This rank last looked for signs of life at `looked`: it counts at most `most` of the time since then, as it may
    /// have been stopped itself, and have yet to read what came.
    void forgive(Instant looked, Clock::duration most, Instant now);
    /// Nothing more is expected of it.
    void drop(int neighbour);

    /// The answers that this rank can give now. `direction`: of a rank, the neighbour behind which it lies.
    std::vector<Answer> take_answers(const std::function<int(int rank)>& direction);
    /// Neighbours that have shown no sign of life since this rank passed news on to them.
    const std::map<int, Instant>& unacknowledged() const noexcept { return since_; }
    /// Every rank that can be reached has this rank's own news.
    bool settled() const;

 private:
    struct Piece {
        int source = own;
        bool done = false;
        std::set<int> askers;   // neighbours that wait for an answer: the source, and others
        std::set<int> sent_to;  // neighbours, once and for all
        std::set<int> asked;    // the ones among them that have not answered
    };
    std::map<Id, Piece> pieces_;
    std::map<int, std::set<Id>> unacknowledged_;
    std::map<int, Instant> since_;
};

}  // namespace tutti::rendezvous
