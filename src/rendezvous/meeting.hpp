// Meeting: the protocol of meet() (tutti/meeting.hpp), without store or threads. LIFELINES.md lists its keys.
//
// The key "outcome" ends an attempt: the first value written there stands, and tells all ranks the result. Rank 0
// writes it when the cards (each rank's data for the others) are complete. Before that, a rank writes it if the rank is
// late, cannot come, sees that ranks disagree, or finds a circle of ranks that wait for each other in different
// meetings; if a process ends without notice, the store writes the process's last will there (StoreBackend::set_will).
// So no rank proceeds alone or with cards that others do not have, and none waits for a rank that has given up.
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
    /// What the protocol needs besides a store.
    struct Surroundings {
        MeetingProcess own;
        std::function<bool(const MeetingProcess&)> has_ended;  ///< for a process in this process's space
        std::function<std::uint64_t()> random;
        /// Whether the calling thread has not yet been told of the failure with this nonce, even as another rank.
        /// Empty: each rank is told of each failure.
        std::function<bool(std::uint64_t nonce)> is_news{};
    };
    static Surroundings surroundings_of_this_process();

    /// The ranks cannot meet with these cards, because of `rank`.
    struct Disagreement {
        int rank = -1;
        std::string why;
    };
    /// MeetingTerms::check may throw it: `rank` will not come. All ranks get PeerLost with the same sentence.
    struct Absent {
        int rank = -1;
        std::string why;
    };
    /// The caller's parts of the protocol.
    struct Caller {
        /// Makes this rank's card; called once the store has this rank's will.
        std::function<std::string()> card;
        /// On rank 0: turns the cards of all into one card that all ranks get instead. May throw Disagreement; any
        /// other exception is a failure of rank 0. Empty: all ranks get all cards.
        std::function<std::string(const std::vector<std::string>& cards)> conclude{};
        std::shared_ptr<const MeetingSentences> sentences = std::make_shared<MeetingSentences>();
    };

    /// `terms` must have been checked; they may be invalid if only say_failed() is called.
    Meeting(MeetingTerms terms, Caller caller, Surroundings surroundings);

    /// Meets. A failure of this rank alone ends the attempt for all ranks.
    StoreTalk<Met> run();
    /// Instead of run(): tells the others that this rank cannot come. Best effort. `may_be_busy`: an interrupted wait
    /// may still occupy the store, so nothing is written to a store without wills.
    StoreTalk<bool> say_failed(std::string why, bool may_be_busy);
    static bool may_leave_busy(const std::exception& error);

    /// The time limit for the current request.
    Milliseconds limit() const;
    /// The prefix of this attempt's keys.
    const std::string& id() const noexcept { return id_; }
    /// The text that completes "still waiting for".
    std::string awaited() const;
    /// On rank 0: the ranks that have not come, and the cards of all others, by rank.
    const std::vector<int>& missing() const noexcept { return missing_; }
    const std::vector<std::string>& cards() const noexcept { return cards_; }
    /// In words: the process that had this rank in an earlier attempt that met; empty: none known.
    const std::string& process_before() const noexcept { return process_before_; }

 private:
    using Outcome = MeetingOutcome;
    struct Note {
        std::string text{};  ///< as stored; empty: the rank does not wait
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
    Outcome checked() const;
    Outcome conclude() const;
    Milliseconds left() const;
    Milliseconds patience(Milliseconds most) const;
    Milliseconds time_of_looks() const;

    const MeetingTerms terms_;
    const Caller caller_;
    const Surroundings surroundings_;
    const MeetingSentences& sentences_;
    const Deadline deadline_;
    std::string payload_, own_;              // this rank's card; the record of it in the store
    std::string number_, id_;                // the attempt's number; the prefix of its keys
    std::vector<std::string> cards_;         // rank 0: of the ranks that have come
    std::vector<MeetingProcess> processes_;  // rank 0: of the ranks that have come
    std::vector<int> missing_;               // rank 0: the ranks that have not come
    std::string noted_;                      // the attempt that this rank's note on the board is about; empty: none
    std::string process_before_;
    Deadline next_single_cards_;       // rank 0, while many are missing: when it looks for cards one by one
    Milliseconds between_circles_{0};  // the pause between two searches for a circle
    Deadline next_circle_;
    bool entered_ = false, settled_ = false;
    bool is_ending_ = false;  // this rank's last messages get little time
};

/// Performs `talk` of `meeting` in a store. `bell`: see StoreBackend::get_with_bell; may be opened meanwhile.
template <class Result>
Result carry_out(const Store& place, const Meeting& meeting, StoreTalk<Result> talk, const UniqueFd* bell = nullptr) {
    return carry_out(
        {&place, 1}, std::move(talk), [&meeting] { return meeting.limit(); }, bell);
}

}  // namespace tutti::rendezvous
