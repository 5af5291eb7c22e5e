// Lifelines: what a rank does about its connections to its neighbours in the tree. It watches them, passes news on and
// answers for them, turns to another parent when its own goes, and to the ranks behind one that is silent.
//
// A rank that leaves stays until its children have a new parent: the nearest of its ancestors that is still there, else
// the lowest rank. So there is no moment in which a death could go unnoticed, and the tree is never cut.
//
// Ranks answer news (ledger.hpp): a rank that began them knows when all have them. A neighbour that shows no sign of
// life is silent: stopped, or cut off. The ranks beside it tell all others so, and turn to its other neighbours
// directly, so that news reach every rank that can be reached. So does a rank that knows of the world's end, if
// its place in the tree has changed because a rank left: one that did not know of the end (nobody else would tell the
// new neighbours), or one beside a silent rank (it may not have turned to those behind).
//
// This is a state machine: events, bytes and the time go in, effects come out. It has no sockets, no threads and no
// clock; a Membership gives it those, and a simulation runs whole worlds of it (tests/simulation).
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"
#include "rendezvous/ledger.hpp"
#include "rendezvous/news_log.hpp"
#include "rendezvous/reparenter.hpp"
#include "rendezvous/roster.hpp"
#include "rendezvous/tree.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::rendezvous {

/// How the end of a lifeline shows.
struct LineEnd {
    enum class How : std::uint8_t {
        closed,     ///< it was closed, by its process or by the kernel
        altered,    ///< its bytes were changed on the way
        host_lost,  ///< the host of the other end has not answered for long
        outlived,   ///< the process has ended, though something keeps the lifeline open
    };
    How how = How::closed;
    std::optional<std::string> process_end{};  ///< how the process ended, if this rank has seen that it has
    std::string fault{};                       ///< altered: TLS's words
};

/// A lifeline that this rank wants, and until when it waits for it.
struct Dial {
    int rank = -1;
    Role role = Role::parent;
    std::chrono::milliseconds limit{0};
};
enum class DialFailure : std::uint8_t {
    refused,    ///< nobody listens there any more
    silent,     ///< nothing came within the limit
    no_thread,  ///< this process cannot have a thread to wait for it
};

// Effects: what the caller does for Lifelines, in their order.
struct SendBytes {
    LineId line = 0;
    std::string bytes;
};
/// This end sends nothing more: the other one closes.
struct EndSending {
    LineId line = 0;
};
struct CloseLine {
    LineId line = 0;
};
/// This rank's own code gets the verdict; afterwards informed(), where there is an id.
struct Inform {
    Verdict verdict;
    std::optional<NewsId> id;
};
using Effect = std::variant<SendBytes, EndSending, CloseLine, Dial, Inform>;

struct LifelineOptions {
    std::chrono::milliseconds silence_limit{13500};  ///< a host that has not answered for so long is lost: for texts
    /// Whether the process of a rank that can be watched is stopped.
    std::function<bool(int rank)> is_stopped;
};

class Lifelines {
 public:
    /// The roster must outlive it.
    Lifelines(const Roster& roster, LifelineOptions options);

    /// A connection is there. `confirmed`: the other end has said `attached` on it.
    LineId attach(int rank, Role role, bool confirmed, Instant now);
    /// False: its neighbour broke the rules; the lifeline has to end.
    bool on_bytes(LineId line, std::span<const std::byte> bytes, Instant now);
    /// Whether its end would be the loss of its rank: then LineEnd::process_end is worth a look.
    bool would_be_missed(LineId line);
    void on_end(LineId line, const LineEnd& end, Instant now);
    void on_dial_failed(const Dial& dial, DialFailure how, Instant now);
    /// This rank begins news. False, and nobody gets them: they are known, or an accusation that counts more is.
    bool flood(const Verdict& verdict, Instant now);
    /// This rank's own code has the verdict.
    void informed(NewsId id);
    /// This rank leaves: it says goodbye, and needs no parent any more.
    void leave(Instant now);
    /// To be called after everything else, and when next_look() has come.
    void on_time(Instant now);
    /// Nothing: only events count.
    std::optional<Instant> next_look(Instant now) const;

    std::vector<Effect> take_effects() { return std::exchange(effects_, {}); }
    /// Every rank that can be reached has this rank's own news (their own code too), and the unreachable are known.
    bool settled() const { return ledger_.settled(); }
    /// Another rank still counts on this one, or has yet to say that it has news: it should not close its lifelines
    /// yet.
    bool is_counted_on() const {
        return (!log_.is_final() && tree_.is_counted_on()) || !ledger_.unacknowledged().empty();
    }
    const Tree& tree() const noexcept { return tree_; }

 private:
    bool pass_on(const Verdict& verdict, LineId source, Instant now);
    void on_word(LineId id, Lifeline& line, const NewsFrame& frame, Instant now);
    void on_verdict(LineId id, Lifeline& line, ReadNews news, Instant now);
    void send(LineId line, std::string bytes) { effects_.emplace_back(SendBytes{line, std::move(bytes)}); }
    void send_answers();
    void send_again(int rank);
    void has_parent_besides(const std::vector<LineId>& old_parents);
    void reparent(Instant now);
    std::optional<Verdict> death_of(const Lifeline& line, const LineEnd& end) const;
    Verdict loss_of_host(const std::vector<int>& ranks) const;
    std::vector<int> ranks_beside(int rank) const;
    void report_losses(Instant now);
    void look_for_silent(Instant now);
    bool is_silent(int rank, Instant since, Instant now) const;
    void go_around(const std::vector<int>& ranks, Instant now);
    void turn_to(int rank, Instant now);
    void tell_new_neighbours(Instant now);
    std::vector<int> beyond_goodbyes() const;

    /// A loss of which this rank may be the only one to know. It informs itself, and may end of that, only when all
    /// others have the news, or have not had them for a while.
    struct Loss {
        Verdict verdict;
        Instant limit;
    };

    const Roster& roster_;
    LifelineOptions options_;
    Tree tree_;
    std::map<LineId, NewsReader> readers_;
    Reparenter reparenter_;
    NewsLog log_;
    Ledger ledger_;
    std::deque<Loss> losses_;
    std::set<std::string> lost_hosts_;  // their keys
    std::set<int> silent_;              // ranks that show no sign of life, as somebody has told
    std::set<int> unreachable_;         // ranks that are silent, or on a host that is lost
    std::set<int> lost_;                // ranks that have died, as somebody has told
    std::set<int> beside_;              // ranks to which this one has turned
    std::set<int> dialed_;              // those among them to which a lifeline is being made
    std::optional<NewsId> end_;         // the news by which the world ended
    Instant looked_{};                  // for signs of life
    bool leaving_ = false;
    std::vector<Effect> effects_;
};

}  // namespace tutti::rendezvous
