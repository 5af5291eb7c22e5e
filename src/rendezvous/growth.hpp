// Growth: how the ranks of a group take newcomers in (ProcessGroup::grow). One rank, the leader, answers as many
// newcomers as are wanted with the number of a plan. It writes the plan for them in their place, and for the ranks in
// the group's own store. Then all of them meet as a world. If the group has failed, its survivors agree on who they are
// first.
//
// The first value under the ranks' key "plan" stands: the plan, why there is none, or that the group has failed
// meanwhile. So all ranks of the group do the same, and the leader says the same to the newcomers. While they meet,
// each watches for those whose end no meeting shows, as they had not come to it: by the wills of newcomers and of the
// leader, and by the old group's failure.
//
// Threads: one at a time.
#pragma once

#include "rendezvous/newcomer.hpp"
#include "rendezvous/survivors.hpp"

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::rendezvous {

class Growth {
 public:
    /// StoreRequest::store of its requests.
    static constexpr int place = 0, of_group = 1;

    struct Terms {
        std::string place;  ///< in words
        std::string keys;   ///< what the keys of this call begin with in the group's store; equal on all ranks
        int count = 0;      ///< as GrowOptions, and so are these two
        std::optional<int> at_least{};
        std::optional<Milliseconds> wait{};
        GrowthPlan plan;  ///< what the leader knows of the new group before the newcomers come
        /// Of this call, where the group has failed; its group, ranks and time limit in any case.
        SurvivorsTerms survivors;
        std::function<std::exception_ptr()> failure;  ///< why the group has failed; null: it has not
        std::function<void()> end;                    ///< ends the old group; throws where it is not held any more
    };
    explicit Growth(Terms terms);

    /// The plan, equal on all ranks and newcomers; number empty: the group stays as it is. Throws Timeout, PeerLost,
    /// the errors of Survivors and of the store.
    StoreTalk<GrowthPlan> agree();
    /// As MeetingTerms::check, while this rank joins the new group. Throws Meeting::Absent, also where the old
    /// group has failed.
    void check(const KeyReader& read) const;
    /// On the leader: the newcomers.
    const std::vector<std::string>& labels() const noexcept { return labels_; }
    Milliseconds limit() const { return late().timeout() + Milliseconds(1000); }
    /// The text that completes "still waiting for".
    const std::string& awaited() const noexcept { return awaited_; }

 private:
    struct Lost {};

    StoreTalk<std::string> plan_of_all();
    StoreTalk<GrowthPlan> agree_with_survivors();
    StoreTalk<bool> lead(std::vector<int> ranks, int count, std::string key, std::function<void()> lost_check);
    StoreTalk<bool> take(int count, Deadline deadline, std::function<void()> check);
    StoreTalk<std::string> settle(std::string key, std::string value);
    GrowthPlan accept(const std::string& text);
    std::string no_plan_of(int leader) const;
    std::string who(int rank) const;
    std::vector<std::int64_t> places(const std::vector<int>& ranks) const;
    std::string gone(int rank) const { return terms_.keys + "gone/" + std::to_string(rank); }
    /// When the leader stops to wait for newcomers.
    Deadline until() const;
    /// For an answer of the leader, which waits for newcomers as long as it may.
    Deadline late() const { return Deadline::at(deadline_.when() + std::chrono::seconds(5)); }
    ErrorContext context() const;

    const Terms terms_;
    const Deadline deadline_;
    bool has_failed_ = false;
    std::vector<std::int64_t> tickets_;  // of those that this rank has taken in
    std::vector<std::string> labels_;
    std::string awaited_;
    GrowthPlan plan_;
};

/// Whether there is a group, once this rank has joined its world: `trouble` is why it cannot use it, empty if it can.
/// A rank that ends now is lost for some ranks before they have all joined and for others behind it, so the first that
/// writes decides for all: no two parts of the ranks go on by themselves. Returns the trouble that stands.
StoreTalk<std::string> agree_whether_made(std::string number, std::string trouble);
/// The trouble that stands, if any: while a rank waits for the others behind two that have failed, which keep the news
/// from it, these may have given up.
std::string trouble_of_others(const std::string& number, const KeyReader& read);

}  // namespace tutti::rendezvous
