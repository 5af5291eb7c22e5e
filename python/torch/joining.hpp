// Joining: how the ranks of a torch group find each other in its store.
//
// A store outlives groups, names of groups come again, and ranks may give up and try again, each in its own time. So
// ranks write the values for each other under a place of those members, "tutti/PLACE", and there under the number of an
// attempt. One key, "tutti/PLACE/state", says how the newest attempt stands; every change of it is a compare_set:
//
//   "3 open NONCE"             rank 0 waits for the others; a new rank joins this one
//   "3 joined NONCE"           all have come; a new rank waits for the next
//   "3 late NONCE rank 2: …"   a rank ran out of time; waiting ranks raise why, a later rank waits for the next
//   "3 failed NONCE rank 2: …" a rank failed; waiting ranks raise why, and so does, once, a later rank
//
// Ranks that disagree about the members are at different places and would wait for each other in vain. So a rank that
// has waited for a moment says under "tutti/board/RANK" (its rank among all) what it waits for, again and again, and
// reads the notes of the ranks that it waits for.
//
// Threads: one.
#pragma once

#include "store.hpp"

#include <tutti/process_group.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::torch {

/// A unique text.
std::string new_nonce();

class Joining : private JoiningWatch {
 public:
    struct Facts {
        int rank = 0;
        int size = 1;
        std::vector<std::uint64_t> members{};  ///< ranks among all, by rank; unknown if there are not `size`
        std::string name{};                    ///< of the group; empty: the group of all ranks
        Milliseconds limit{0};
    };
    Joining(std::shared_ptr<JoiningStore> store, Facts facts);

    /// Calls `make`, which joins a world in the store that it gets, until the ranks have met or this one has failed;
    /// tells the others why.
    ProcessGroup join(const std::function<ProcessGroup(const Store&)>& make);
    /// For a rank that cannot even try: tells the ranks that wait for it. Takes a moment at most; throws nothing.
    static void refuse(const std::shared_ptr<JoiningStore>& store, const Facts& facts, const std::string& why) noexcept;

 private:
    struct State {
        explicit State(std::string whole = {});
        std::string text;
        std::uint64_t attempt = 0;
        std::string word, nonce, reason;
    };
    using Clock = std::chrono::steady_clock;

    void open();
    void follow();
    void conclude(ProcessGroup& group);
    void tell_others(const std::string& error, bool late) noexcept;
    std::string next_text(std::uint64_t attempt, const char* word, const std::string& why = {}) const;
    std::string own_name() const;
    std::string title() const;
    std::string failure_of(const State& state) const;

    void look() override;
    bool give_up() override;
    Milliseconds left() const override;
    std::optional<std::string> look_at_state();
    std::optional<std::string> look_at_board();
    std::optional<std::string> read_note(std::uint64_t other);
    std::vector<std::uint64_t> next_to_look_at();

    std::shared_ptr<JoiningStore> store_;
    Facts facts_;
    std::uint64_t own_;    // this rank's among all
    std::string says_;     // this rank's note about the members
    Store place_, aside_;  // the same keys: for waits, and for requests beside them
    Store board_;
    Clock::time_point began_, next_look_;
    State state_;  // of the attempt that this rank takes part in
    bool disagrees_ = false;
    std::uint64_t beat_ = 0;
    std::size_t window_ = 0;
    std::map<std::uint64_t, std::string> seen_;  // last notes on the board, by rank
};

}  // namespace tutti::torch
