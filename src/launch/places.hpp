// Places: which launcher is which node of a job. The launcher whose process serves the store, node 0's at first, alone
// decides: it reads which launchers have come and which give signs of life, gives the place of a vanished launcher to
// the next one that asks for it, and refuses the place of a live one. Before each attempt it publishes the roster: the
// launchers whose ranks belong to this attempt. A launcher that returns and is not in the roster has lost its place.
// Where ranks are replaced, the job begins when enough launchers are there, and those that come later, or again, take
// part in the attempt that runs, with newcomers. Where a standby of the store takes over, its launcher goes on from the
// keys of the lost one, and its ranks come first in later attempts.
//
// Keys below "launch/": came (one card per line, in order of arrival), beat/ID (a launcher's last sign of life, in ms
// since 1970), gone/ID (written by its will), answer/ID (node 0's: "joins A NODE" or "refused WHY"), missing (in
// words), and for each attempt A: A/roster, A/end (its outcome), A/stopped (IDs of launchers without ranks, one per
// line).
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

/// A launcher's description of itself.
struct NodeCard {
    int node = 0;      ///< -1: any that is free; then it does not say nodes, max_restarts and least
    std::string id{};  ///< unique to this launcher
    int ranks = 1, nodes = 1, max_restarts = 0;
    int least = 0;  ///< so many nodes are enough, and ranks are replaced; 0: all are needed, and none is replaced
    bool standby = false;  ///< the store has one
    int pid = 0;
    std::string address{}, host{};

    /// "train-1, 10.0.0.7, pid 12"
    std::string who() const;
    std::string to_text() const;
    static NodeCard from_text(const std::string& text);
};

/// The launchers of an attempt, in the order of their ranks: first the one that serves the store, then by their nodes.
/// Where ranks are replaced some nodes may be missing.
struct NodesRoster {
    int ranks_port = 0;  ///< MASTER_PORT of the ranks
    std::string run_id{};
    std::vector<NodeCard> cards{};

    std::string to_text() const;
    static NodesRoster from_text(const std::string& text);
};

/// What a launcher finds when the one that served the store is lost, and its own server serves it now.
struct Inheritance {
    std::string id;                ///< its own
    std::string lost_id;           ///< that of the launcher that served before
    NodesRoster roster;            ///< the last one
    std::optional<int> running{};  ///< its attempt, unless that has ended
};

/// The name of an attempt's key.
std::string attempt_key(int attempt, const char* what);
/// The message that a launcher has vanished; words_of_sign() adds its last sign of life.
std::string words_of_loss(const NodeCard& card, const std::string& cause);
std::string words_of_sign(const std::string& beat);
/// The cause if its connection has ended.
inline constexpr const char* connection_ended = "its connection has ended: it was killed, or its host was";

class Places {
 public:
    static constexpr std::chrono::seconds silence{15};  ///< after which a launcher counts as dead
    /// Further time for a launcher that was cut off to end its own ranks, before another one gets its place.
    static constexpr std::chrono::seconds fence{6};

    /// `own`: node 0's card. `last_call`: how long the first attempt waits for the other nodes when enough are there.
    Places(Store store, const NodeCard& own, int ranks_port, std::string run_id, Clock::duration last_call = {});
    /// Of a launcher that takes over. `ranks_port`: for later attempts.
    Places(Store store, const Inheritance& from, int ranks_port);

    /// Checks which launchers have come and which are alive, and answers those that ask for a place.
    void look();
    /// A launcher of the last roster that has vanished.
    struct Lost {
        int node;
        std::string text;
    };
    std::optional<Lost> lost() const;
    /// Where ranks are replaced: the launchers of this attempt that have vanished since the last call.
    std::vector<Lost> take_lost();
    /// Whether ranks are replaced.
    bool changes() const noexcept { return own_.least > 0; }
    const NodeCard& own() const noexcept { return own_; }
    /// How another launcher comes in that node's place: "another with --node-rank 1".
    std::string another(int node) const;
    /// How many launchers live.
    int living() const;
    /// The IDs of the launchers that have a place and a connection.
    std::vector<std::string> present() const;
    /// Of those that live, take part in the last attempt or wait for the first one, and are not this one, by their
    /// nodes: they may run the store's standby.
    std::vector<std::string> others() const;
    /// The error: a launcher was started with other numbers of nodes or restarts than this one. Empty: none.
    const std::string& disagreement() const noexcept { return disagreement_; }

    /// No attempt runs: launchers that come wait for the next one.
    void rest() { running_.reset(); }
    /// The first node whose launcher is not ready for this attempt, with the reasons for all such nodes; none: all are.
    std::optional<Lost> missing(int attempt);
    /// All launchers are ready: publishes the attempt's roster.
    void begin(int attempt);
    /// Tells the launchers that this attempt will not begin; A/end says why.
    void give_up(int attempt);
    /// Tells the launchers that still wait that the job is over, and why.
    void close(const std::string& why);

 private:
    struct Place {
        std::optional<NodeCard> holder;
        std::string sign{};  // the holder's last sign of life
        Instant heard_at{};
        Instant fenced_until{};
        bool gone = false;       // its connection has ended
        bool member = false;     // it is in the last roster
        bool takes_any = false;  // it has asked for any place
    };
    struct Newcomer {
        NodeCard card;
        std::string id_of_holder, sign_of_holder;  // those found at its arrival
        Instant since;
    };

    Place& own_place() { return places_[static_cast<std::size_t>(own_.node)]; }
    void read_newcomers(Instant now);
    void receive(const NodeCard& card, Instant now);
    void complete(NodeCard& card, int node) const;
    void hear(Instant now);
    void decide(Instant now);
    void admit(Place& place, const NodeCard& card, Instant now);
    void answer(const NodeCard& card, const std::string& text);
    bool is_silent(const Place& place, Clock::duration time) const;
    bool lives(const Place& place) const;
    bool is_free(const Place& place) const;
    std::string words_of_loss(const Place& place) const;

    Store store_;
    NodeCard own_;
    NodesRoster roster_;
    std::vector<Place> places_;
    std::vector<Newcomer> newcomers_;
    Clock::duration last_call_;
    std::optional<Instant> enough_since_;
    std::optional<int> running_;    // the attempt
    bool inherits_ = false;         // --master-addr leads to the lost launcher
    std::vector<Lost> lost_;        // for take_lost()
    std::optional<Lost> replaced_;  // from the last roster; another one has its place
    std::size_t read_ = 0;          // bytes of "came"
    Instant looked_at_ = tutti::Clock::now();
    std::string disagreement_, missing_ = "?";
};

}  // namespace tutti::launch
