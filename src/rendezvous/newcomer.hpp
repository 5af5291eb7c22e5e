// Newcomer: how a process waits for a group to take it in (tutti::join). A newcomer takes a number in the place, writes
// who it is, and waits for its answer: the number of a plan. If it gives up, it answers itself; if it ends, the store
// does so (a last will). A second will says that it has gone to those who have taken it in.
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"
#include "rendezvous/growth_plan.hpp"
#include "rendezvous/store_talk.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tutti::rendezvous {

/// The value of a key, if it is there, without a wait. `store`: as StoreRequest::store.
using KeyReader = std::function<std::optional<std::string>(int store, const std::string& key)>;

class Newcomer {
 public:
    struct Terms {
        std::string place, name;  ///< in words
        std::string label;        ///< this process
        Milliseconds timeout;
    };
    explicit Newcomer(Terms terms) : terms_(std::move(terms)), deadline_(Deadline::after(terms_.timeout)) {}

    /// The plan of the group that takes this process in. Throws Timeout: none did, or its plan came to nothing.
    StoreTalk<GrowthPlan> come();
    /// As MeetingTerms::check, while this process joins the new group. Throws Meeting::Absent.
    void check(const KeyReader& read) const;
    const GrowthPlan& plan() const noexcept { return plan_; }
    int rank() const { return plan_.rank_of_ticket(ticket_); }
    Milliseconds limit() const { return deadline_.timeout() + Milliseconds(1000); }
    std::string awaited() const;

 private:
    StoreTalk<bool> be_taken_in();
    StoreTalk<bool> give_up();

    const Terms terms_;
    const Deadline deadline_;
    std::int64_t ticket_ = 0;
    GrowthPlan plan_;
};

/// The tickets of those that wait in the place.
StoreTalk<std::vector<std::int64_t>> waiting_newcomers();

/// How often a wait for another process looks whether that one has ended.
inline constexpr Milliseconds look_every{100};

/// Waits for a key in slices, with `check` in between; no value: the deadline has passed.
StoreTalk<StoreAnswer> wait_with(StoreRequest key, Deadline deadline, std::function<void()> check);

}  // namespace tutti::rendezvous
