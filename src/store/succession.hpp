// Succession: which of the two servers of a store, the primary and its standby, may answer clients. PROTOCOL.md tells
// the rule, and why two servers never both go on.
//
// This is a state machine: events and the time go in. It has no sockets, threads or clock: Pair provides them, and a
// simulation runs many pairs with random cuts, kills and delays (succession_test.cpp).
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"

#include <chrono>
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

namespace tutti::store {

using ClientId = std::uint64_t;
using Term = std::uint64_t;

struct SuccessionTimes {
    std::chrono::milliseconds pulse{100};   ///< from one sign of life of the primary to the next
    std::chrono::milliseconds lease{1000};  ///< the primary answers so long after a pulse that the standby has answered
    std::chrono::milliseconds silence{1300};   ///< after which the standby asks for votes: longer than the lease
    std::chrono::milliseconds patience{3000};  ///< after which the primary does, from the end of the lease
};

class Succession {
 public:
    enum class Role : std::uint8_t {
        alone,      ///< serves; no standby can take over
        paired,     ///< serves what the standby has, too, within the lease
        learning,   ///< a standby without the whole contents
        following,  ///< a standby that may take over
        retired,    ///< serves nobody any more
    };
    explicit Succession(bool standby, const SuccessionTimes& times = {})
        : times_(times), role_(standby ? Role::learning : Role::alone) {}

    Role role() const noexcept { return role_; }
    bool serves() const noexcept { return role_ == Role::alone || role_ == Role::paired; }
    Term term() const noexcept { return term_; }
    /// Whether this server may send an answer that shows the effect of change `seq` now.
    bool may_answer(std::uint64_t seq, Instant now) const {
        return role_ == Role::alone || (role_ == Role::paired && seq <= acked_ && now < lease_end_);
    }
    /// Whether it asks its clients for their votes of this term.
    bool asks(Instant now) const;
    /// A paired primary whose lease is over.
    bool doubts(Instant now) const { return role_ == Role::paired && now >= lease_end_; }

    // The clients that have a vote, as changes of the contents: `seq` is the change's number.
    void came(ClientId client, std::uint64_t seq);
    void left(ClientId client, std::uint64_t seq);
    const std::set<ClientId>& voters() const noexcept { return voters_; }
    /// A client votes for this server.
    void vote(ClientId client, Term term, Instant now);
    /// The other server says that it goes on without this one.
    void other_goes_on();
    /// The connection to the other one has ended. `gone`: its host says that the process does not listen any more;
    /// `in_order`: all that it sent has arrived.
    void other_ended(bool gone, bool in_order, Instant now);

    // The primary.
    /// It begins to send the contents to a standby, as changes up to `seq`.
    void begin_pair(std::uint64_t seq);
    bool has_standby() const noexcept { return tracks_; }
    /// The standby has all changes up to `seq`, and the pulse sent at `pulse`. `asked`: it has asked for votes in this
    /// term. True: a new term is to begin; send it as a change, and call new_term() with that change's number.
    bool acked(std::uint64_t seq, Instant pulse, bool asked, Instant now);
    Term new_term(std::uint64_t seq);

    // The standby.
    void heard(Instant now);
    void follow(Term term, Instant now);
    bool has_asked() const noexcept { return asked_; }

 private:
    void go_alone();
    void settle(Instant now);
    struct Change {
        std::uint64_t seq;
        ClientId client;
        bool came;
    };

    SuccessionTimes times_;
    Role role_;
    Term term_ = 1;
    std::set<ClientId> voters_, votes_;
    bool broken_ = false;  // the primary's connection to the standby has ended
    bool asked_ = false;   // in this term

    // The primary's.
    bool tracks_ = false;          // there is a standby
    std::set<ClientId> agreed_;    // the voters as the standby has acknowledged them
    std::vector<Change> pending_;  // what it has not yet
    std::uint64_t begun_ = 0, acked_ = 0, term_seq_ = 0;
    Instant lease_end_{};

    Instant heard_{};  // the standby's
};

/// A client's part: it gives its vote of each term to one server only.
class Ballot {
 public:
    bool grant(std::string_view server, Term term);
    /// A server that serves has this term: one of an earlier term gets no vote any more. A client that has just joined
    /// needs to know it before it votes: its coming may be news to the other server.
    void know(Term term);

 private:
    Term last_ = 0;
    std::string given_to_;
};

}  // namespace tutti::store
