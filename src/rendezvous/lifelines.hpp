// Lifelines: the logic of a rank's connections to its neighbours in the tree. It watches them, passes news on and
// answers it, connects to a new parent when the old one leaves, and to the ranks behind a silent neighbour.
//
// A leaving rank stays until its children have a new parent: their nearest ancestor that has not left, else the lowest
// rank that has not. So a death never goes unnoticed, and the tree is never cut.
//
// Ranks answer news (ledger.hpp), so its originator knows when all ranks have it. A neighbour that shows no sign of
// life is silent: stopped, or cut off. The ranks next to it report this to all others and connect to its other
// neighbours directly, so that news reaches every reachable rank. When a rank leaves, some of the others become
// neighbours of each other. A rank that knows of the world's end connects to such a new neighbour if the rank that left
// did not know of the end (nobody else would tell the new neighbour) or was next to a silent rank (it may not have
// connected to the ranks behind that one).
// This is a state machine: events, bytes and the time go in, effects come out. It has no sockets, threads or clock: a
// Membership provides them, and a simulation runs whole worlds of Lifelines (tests/simulation).
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

/// How a lifeline has ended, as this rank sees it.
struct LineEnd {
    enum class How : std::uint8_t {
        closed,     ///< the peer's process or the kernel closed it
        altered,    ///< its bytes were changed on the way
        host_lost,  ///< the peer's host has not answered for the silence limit
        outlived,   ///< the peer's process has ended, but something keeps the lifeline open
    };
    How how = How::closed;
    std::optional<std::string> process_end{};  ///< how the peer's process ended, if this rank knows it
    std::string fault{};                       ///< for `altered`: TLS's error message
};

/// A lifeline that this rank wants, and how long it waits for the connection.
struct Dial {
    int rank = -1;
    Role role = Role::parent;
    std::chrono::milliseconds limit{0};
};
enum class DialFailure : std::uint8_t {
    refused,    ///< nobody listens there any more
    silent,     ///< no answer within the limit
    no_thread,  ///< this process could not start a thread for it
};

// Effects: what the caller does for Lifelines, in their order.
struct SendBytes {
    LineId line = 0;
    std::string bytes;
};
/// Stop sending on this lifeline: the peer then closes it.
struct EndSending {
    LineId line = 0;
};
struct CloseLine {
    LineId line = 0;
};
/// Pass the verdict to this rank's own code; then call informed() if there is an id.
struct Inform {
    Verdict verdict;
    std::optional<NewsId> id;
};
using Effect = std::variant<SendBytes, EndSending, CloseLine, Dial, Inform>;

struct LifelineOptions {
    std::chrono::milliseconds silence_limit{13500};  ///< for texts: a host is lost after this time without an answer
    /// Whether the process of a rank is stopped; only asked if Roster::can_watch(rank).
    std::function<bool(int rank)> is_stopped;
};

class Lifelines {
 public:
    /// The roster must outlive it.
    Lifelines(const Roster& roster, LifelineOptions options);

    /// There is a connection to `rank`. `confirmed`: the peer has sent `attached` on it.
    LineId attach(int rank, Role role, bool confirmed, Instant now);
    /// False: the neighbour violated the protocol; the caller has to end the lifeline.
    bool on_bytes(LineId line, std::span<const std::byte> bytes, Instant now);
    /// Whether its end would mean that its rank is lost: then find out LineEnd::process_end before on_end().
    bool would_be_missed(LineId line);
    void on_end(LineId line, const LineEnd& end, Instant now);
    void on_dial_failed(const Dial& dial, DialFailure how, Instant now);
    /// This rank originates news. False, and nothing is sent, if it or a prevailing accusation is known already.
    bool flood(const Verdict& verdict, Instant now);
    /// This rank's own code has been given the verdict.
    void informed(NewsId id);
    /// This rank leaves: it says goodbye, and needs no parent any more.
    void leave(Instant now);
    /// Call it after every other event, and at the time next_look().
    void on_time(Instant now);
    /// When to call on_time() next; nullopt: only after the next event.
    std::optional<Instant> next_look(Instant now) const;

    std::vector<Effect> take_effects() { return std::exchange(effects_, {}); }
    /// Every reachable rank and its own code have this rank's own news, and the unreachable ranks are known.
    bool settled() const { return ledger_.settled(); }
    /// Another rank still depends on this one, or has yet to acknowledge news: this rank should not close its lifelines
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

    /// A loss that this rank may be the only one to know of. Its own code may exit once informed, so that happens only
    /// when all others have the news, or at `limit`.
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
    std::set<std::string> lost_hosts_;  // their host_key
    std::set<int> silent_;              // ranks that some rank has reported silent
    std::set<int> unreachable_;         // ranks that are silent, or on a host that is lost
    std::set<int> lost_;                // ranks that some rank has reported dead
    std::set<int> beside_;              // ranks that this one has turned to around others
    std::set<int> dialed_;              // ranks of beside_ whose lifeline is not made yet
    std::optional<NewsId> end_;         // the news by which the world ended
    Instant looked_{};                  // when this rank last checked for signs of life
    bool leaving_ = false;
    std::vector<Effect> effects_;
};

}  // namespace tutti::rendezvous
