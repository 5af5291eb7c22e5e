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
#include "core/unique_fd.hpp"
#include "rendezvous/meeting_records.hpp"
#include "rendezvous/meeting_sentences.hpp"
#include "rendezvous/store_talk.hpp"

#include <tutti/meeting.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tutti::rendezvous {

class Meeting {
 public:
    /// The rest of the world, as far as it is no store.
    struct Surroundings {
        MeetingProcess own;
        std::function<bool(const MeetingProcess&)> has_ended;  ///< of one in this process's space
        std::function<std::uint64_t()> random;
        /// Whether whoever calls this hears of the failure with this nonce for the first time, also as another rank.
        /// Empty: each rank hears of each failure.
        std::function<bool(std::uint64_t nonce)> is_news{};
    };
    static Surroundings surroundings_of_this_process();

    /// The ranks cannot meet with these cards, because of `rank`.
    struct Disagreement {
        int rank = -1;
        std::string why;
    };
    /// What a caller does in its own way.
    struct Caller {
        /// Makes this rank's card, once the store has its will.
        std::function<std::string()> card;
        /// On rank 0, from the cards of all to the one that all get instead of them. May throw Disagreement; another
        /// exception is rank 0's failure. Empty: all get all cards.
        std::function<std::string(const std::vector<std::string>& cards)> conclude{};
        std::shared_ptr<const MeetingSentences> sentences = std::make_shared<MeetingSentences>();
    };

    /// `terms` have been checked. For say_failed() alone they may make no sense.
    Meeting(MeetingTerms terms, Caller caller, Surroundings surroundings);

    /// A failure of this rank alone ends the attempt for all.
    StoreTalk<Met> run();
    /// Instead of run(): this rank cannot come. Best effort. `may_be_busy`: it was torn out of a wait, which may still
    /// keep the store busy; one without wills is left alone then.
    StoreTalk<bool> say_failed(std::string why, bool may_be_busy);
    static bool may_leave_busy(const std::exception& error);

    /// How long the request that is under way may take.
    Milliseconds limit() const;
    /// How this attempt's keys begin.
    const std::string& id() const noexcept { return id_; }
    /// Completes "still waiting for".
    std::string awaited() const;
    /// Rank 0: those who have not come; and the cards of all others, by rank.
    const std::vector<int>& missing() const noexcept { return missing_; }
    const std::vector<std::string>& cards() const noexcept { return cards_; }
    /// In words: the process that had this rank in an attempt that has met; empty: none that is known.
    const std::string& process_before() const noexcept { return process_before_; }

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
    StoreTalk<bool> find();
    StoreTalk<bool> enter();
    StoreTalk<bool> enter_behind(std::string other_card);
    StoreTalk<Outcome> hear_why(int rank);
    StoreTalk<bool> next();
    StoreTalk<Outcome> gather();
    StoreTalk<Outcome> take_cards();
    StoreTalk<Outcome> await_outcome();
    StoreTalk<Outcome> settle(Outcome outcome);
    StoreTalk<Outcome> give_up();
    StoreTalk<bool> look_for_circle();
    StoreTalk<Notes> read_notes();
    Outcome outcome_in(const std::string& bytes) const;
    Outcome outcome(Outcome::Kind kind, int rank, const std::string& why) const;
    std::string other_size(int rank, int says, int rank_0_says) const;
    bool accept(Outcome outcome, Met& met);
    bool is_of_others(const Outcome& outcome) const;
    bool is_news(const Outcome& outcome) const;
    bool is_dead(const MeetingProcess& process) const;
    void be(const std::string& number);
    std::string key_of_newest() const { return terms_.name + "/newest"; }
    std::string card_key(int rank) const { return id_ + "/card/" + std::to_string(rank); }
    std::string outcome_key() const { return id_ + "/outcome"; }
    int number_of(int rank) const;
    Outcome take(int rank, const std::string& bytes);
    Outcome dead_one() const;
    Outcome conclude() const;
    bool must_look() const { return terms_.check || !terms_.members.empty(); }
    Milliseconds left() const;

    const MeetingTerms terms_;
    const Caller caller_;
    const Surroundings surroundings_;
    const MeetingSentences& sentences_;
    const Deadline deadline_;
    std::string payload_, own_;              // this rank's card, and as it stands in the store
    std::string number_, id_;                // of the attempt; the beginning of its keys
    std::vector<std::string> cards_;         // rank 0: of those who have come
    std::vector<MeetingProcess> processes_;  // theirs
    std::vector<int> missing_;               // rank 0: the ranks that have not come
    std::string noted_;                      // the attempt that this rank's note on the board is about; empty: none
    std::string process_before_;
    Milliseconds between_circles_{0};  // the pause between two looks for a circle
    Deadline next_circle_ = Deadline::after(between_circles_);
    bool entered_ = false, settled_ = false;
    bool is_ending_ = false;  // what it still says to others must not hold it up
};

/// Carries `talk` of `meeting` out in a store. `bell`: as StoreBackend::get_with_bell; it may be opened meanwhile.
template <class Result>
Result carry_out(const Store& place, const Meeting& meeting, StoreTalk<Result> talk, const UniqueFd* bell = nullptr) {
    TalkLine line;
    talk.start(line);
    while (!talk.is_over()) {
        try {
            line.answer = perform(place, line.request, meeting.limit(), bell == nullptr ? -1 : bell->get());
        } catch (const std::exception&) {
            line.error = std::current_exception();
        }
        talk.go_on(line);
    }
    return talk.result();
}

}  // namespace tutti::rendezvous
