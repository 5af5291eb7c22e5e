// Ledger: keeps track of which neighbours have yet to answer which piece of news (a verdict that ranks pass on over the
// tree of lifelines).
//
// A rank that passes a piece of news on asks each neighbour that gets it for an answer. The neighbour acknowledges the
// news at once, and answers when all ranks to which it passed the news on have answered. So the originator knows when
// every reachable rank has the news, and the ranks next to a silent neighbour notice the silence.
//
// A rank that connects to this one around a silent rank asks for an answer, too: the silent rank may have brought the
// news here and can no longer pass the answer on. This answer covers the ranks behind this one, but none in the
// direction of the asker, which asks those itself: otherwise the ranks on both sides of a silent one would wait for
// each other.
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
    static constexpr int nobody = -2;  ///< instead of a source: this rank has answered

    struct Answer {
        int to = own;
        Id id = 0;
    };

    /// This rank got the news from neighbour `source`, or originated it (`own`), and owes an answer.
    void open(Id id, int source);
    /// This rank is about to ask another neighbour about news that it may have answered already.
    void reopen(Id id) { pieces_.try_emplace(id, Piece{.source = nobody, .done = true}); }
    /// A neighbour that did not bring the news asks for an answer, too. No effect if this rank has given its answer.
    void owe_too(Id id, int neighbour);
    /// Whether this rank owes the neighbour an answer.
    bool owes(Id id, int neighbour) const;
    /// This rank passes the news on to a neighbour and asks for an answer. No effect the second time.
    void ask(Id id, int neighbour, Instant now);
    /// As ask(), for all news here that did not come from this neighbour.
    void ask_all(int neighbour, Instant now);
    /// This rank has done its own part: it can answer once its neighbours have.
    void done(Id id);
    /// The neighbour has the news.
    void acknowledged(Id id, int neighbour, Instant now);
    /// The neighbour has the news, and so have all ranks to which it passed the news on.
    void answered(Id id, int neighbour, Instant now);
    /// Counts at most `most` of the time since `looked`, this rank's last check, as its neighbours' silence: this rank
    /// may have been stopped itself, with input still unread.
    void forgive(Instant looked, Clock::duration most, Instant now);
    /// Expects nothing more from the neighbour.
    void drop(int neighbour);

    /// The answers that this rank can give now. `direction`: returns the neighbour through which a rank is reached.
    std::vector<Answer> take_answers(const std::function<int(int rank)>& direction);
    /// Neighbours with unacknowledged news, and when each last showed a sign of life (at first: when it was asked).
    const std::map<int, Instant>& unacknowledged() const noexcept { return since_; }
    /// Every reachable rank has this rank's own news.
    bool settled() const;

 private:
    struct Piece {
        int source = own;
        bool done = false;
        std::set<int> askers;   // neighbours that wait for an answer: the source, and others
        std::set<int> sent_to;  // neighbours that ever got it
        std::set<int> asked;    // neighbours of sent_to that have not answered
    };
    std::map<Id, Piece> pieces_;
    std::map<int, std::set<Id>> unacknowledged_;
    std::map<int, Instant> since_;
};

}  // namespace tutti::rendezvous
