// Meeting: the protocol of meet() (tutti/meeting.hpp), without a store and without threads. LIFELINES.md has its keys.
//
// An attempt ends by one key, its outcome: the first that is written there stands, and says to all ranks what has
// become of it. Rank 0 writes it when all cards are there; whoever is late, cannot come, sees that the ranks disagree,
// or finds itself on a circle writes it before; and for a rank that ends without a word its will does. So no rank can
// go on alone, or with other cards, and no rank waits for one that has given up.
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"
#include "rendezvous/store_talk.hpp"

#include <tutti/meeting.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tutti::rendezvous {

/// The process that a rank is.
struct MeetingProcess {
    std::string space;       ///< processes of one space can tell whether another of it lives
    int number = 0;          ///< in its space
    std::string in_words{};  ///< "process 4711 on node07"
};

/// How an attempt has ended; all of its ranks read it.
struct MeetingOutcome {
    enum Kind { none, met, late, failed, ended, disagrees };
    int kind = none;
    int rank = -1;            ///< whom it is about
    std::string text{};       ///< the sentence for all; where they have met: empty
    std::uint64_t nonce = 0;  ///< each is another one
    std::vector<std::string> cards{};
};

class Meeting {
 public:
    /// The rest of the world, as far as it is no store.
    struct Surroundings {
        MeetingProcess own;
        std::function<bool(const MeetingProcess&)> has_ended;  ///< of one in this process's space
        std::function<std::uint64_t()> random;
    };
    static Surroundings surroundings_of_this_process();

    /// `terms` have been checked.
    Meeting(MeetingTerms terms, std::string card, Surroundings surroundings);

    /// A failure of this rank alone ends the attempt for all.
    StoreTalk<Met> run();
    /// Instead of run(): this rank cannot come. Best effort.
    StoreTalk<bool> say_failed(std::string why);

    /// How long the request that is under way may take.
    Milliseconds limit() const;
    /// How this attempt's keys begin.
    const std::string& id() const noexcept { return id_; }
    /// Completes "still waiting for".
    std::string awaited() const;

 private:
    using Outcome = MeetingOutcome;
    struct Note {
        std::string text{};  ///< as it stands in the store; empty: the rank does not wait
        std::string id{}, words{};
        std::vector<int> members{}, absent{};
    };
    using Notes = std::map<int, Note>;

    StoreTalk<Met> come();
    StoreTalk<bool> leave();
    StoreTalk<bool> enter();
    StoreTalk<bool> enter_behind(std::string other_card);
    StoreTalk<Outcome> hear_why(int rank);
    StoreTalk<bool> next();
    StoreTalk<Outcome> gather();
    StoreTalk<std::string> take_cards();
    StoreTalk<Outcome> await_outcome();
    StoreTalk<Outcome> settle(Outcome outcome);
    StoreTalk<Outcome> give_up();
    StoreTalk<bool> look_for_circle();
    StoreTalk<Notes> read_notes();
    Outcome outcome_in(const std::string& bytes) const;
    Outcome outcome(Outcome::Kind kind, int rank, const std::string& why) const;
    bool accept(Outcome outcome, Met& met);
    void be(const std::string& number);
    std::string key_of_newest() const { return terms_.name + "/newest"; }
    std::string card_key(int rank) const { return id_ + "/card/" + std::to_string(rank); }
    std::string outcome_key() const { return id_ + "/outcome"; }
    int number_of(int rank) const;
    std::string name_of(int rank) const { return "rank " + std::to_string(number_of(rank)); }
    std::string why_not_to_take(int rank, const std::string& bytes);
    bool must_look() const { return terms_.check || !terms_.members.empty(); }
    Milliseconds left() const;

    const MeetingTerms terms_;
    const Surroundings surroundings_;
    const Deadline deadline_;
    const std::string payload_;
    std::string own_;                  // this rank's card as it stands in the store
    std::string number_, id_;          // of the attempt; the beginning of its keys
    std::vector<std::string> cards_;   // rank 0: of those who have come
    std::vector<int> missing_;         // rank 0: the ranks that have not come
    std::string noted_;                // the attempt that this rank's note on the board is about; empty: none
    Milliseconds between_circles_{0};  // the pause between two looks for a circle
    Deadline next_circle_ = Deadline::after(between_circles_);
    bool entered_ = false, settled_ = false;
    bool is_ending_ = false;  // what it still says to others must not hold it up
};

}  // namespace tutti::rendezvous
