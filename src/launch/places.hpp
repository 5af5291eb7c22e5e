// Places: which launcher is which node of a job. Node 0's launcher, whose process serves the store, decides it alone:
// it reads who has come and who gives signs of life, gives the place of a launcher that has vanished to the next one
// that asks for it, and refuses the place of one that lives. Before each attempt it publishes the roster: the launchers
// whose ranks belong to that attempt. A launcher that comes back and is not in the roster has lost its place.
//
// Keys, below "launch/": came (a card a line, in the order of coming), beat/ID (a launcher's last sign of life, in ms
// since 1970), gone/ID (its last will), answer/ID (node 0's: "joins A" or "refused WHY"), missing (in words), and for
// each attempt A: A/roster, A/end (its outcome), A/stopped (an ID a line: the launchers of which no rank is left).
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"

#include <tutti/store.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace tutti::launch {

/// What a launcher says of itself.
struct NodeCard {
    int node = 0;
    std::string id{};  ///< of this launcher, no other's
    int ranks = 1, nodes = 1, max_restarts = 0;
    int pid = 0;
    std::string address{}, host{};

    /// "train-1, 10.0.0.7, pid 12"
    std::string who() const;
    std::string to_text() const;
    static NodeCard from_text(const std::string& text);
};

/// The launchers of an attempt, in the order of their nodes.
struct NodesRoster {
    int ranks_port = 0;  ///< MASTER_PORT of the ranks
    std::string run_id{};
    std::vector<NodeCard> cards{};

    std::string to_text() const;
    static NodesRoster from_text(const std::string& text);
};

/// The name of an attempt's key.
std::string attempt_key(int attempt, const char* what);
/// The words about a launcher that has vanished, and those that complete them with its last sign of life.
std::string words_of_loss(const NodeCard& card, const std::string& cause);
std::string words_of_sign(const std::string& beat);
/// The cause where its connection has ended.
inline constexpr const char* connection_ended = "its connection has ended: it was killed, or its host was";

class Places {
 public:
    static constexpr std::chrono::seconds silence{15};  ///< of a launcher that is taken for dead
    /// The time for a launcher that was cut off to end its own ranks, before another gets its place.
    static constexpr std::chrono::seconds fence{6};

    /// `own`: node 0's.
    Places(Store store, const NodeCard& own, int ranks_port, std::string run_id);

    /// Looks at who has come, who lives and who has stopped, and answers those that ask for a place.
    void look();
    /// A launcher of the last roster that has vanished.
    struct Lost {
        int node;
        std::string text;
    };
    std::optional<Lost> lost() const;
    /// The IDs of the launchers that have a place and a connection.
    std::vector<std::string> present() const;
    /// A launcher was started with other numbers of nodes or restarts than this one.
    const std::string& disagreement() const noexcept { return disagreement_; }

    /// The first node whose launcher is not ready for this attempt, and the reasons of all such; none: all are.
    std::optional<Lost> missing(int attempt);
    /// All are ready: those that are form the attempt.
    void begin(int attempt);
    /// There will be no such attempt; A/end says why.
    void give_up(int attempt);
    /// The job is over for those that still wait.
    void close(const std::string& why);

 private:
    struct Place {
        std::optional<NodeCard> holder;
        std::string sign{};  // of life, the last
        Instant heard_at{};
        bool gone = false;    // its connection has ended
        bool member = false;  // of the last roster
    };
    struct Newcomer {
        NodeCard card;
        std::string id_of_holder, sign_of_holder;  // that it found
        Instant since;
    };

    void read_newcomers(Instant now);
    void hear(Instant now);
    void decide(Instant now);
    void admit(Place& place, const NodeCard& card, Instant now);
    void answer(const NodeCard& card, const std::string& text);
    bool is_silent(const Place& place, Clock::duration time) const;
    std::string words_of_loss(const Place& place) const;

    Store store_;
    NodeCard own_;
    NodesRoster roster_;
    std::vector<Place> places_;
    std::vector<Newcomer> newcomers_;
    std::optional<Lost> replaced_;  // a launcher of the last roster
    std::size_t read_ = 0;          // of "came"
    Instant looked_at_ = Clock::now();
    std::string disagreement_, missing_ = "?";
};

}  // namespace tutti::launch
