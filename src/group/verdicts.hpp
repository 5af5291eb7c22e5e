// Verdicts: what the ranks of a world say of each other, and how a world ends by it. A rank that notices trouble
// accuses; all are told; the one whose accusation counts judges; all fail with what it says.
//
// Threads: any; functions that fail the world need its lock.
#pragma once

#include "group/health.hpp"
#include "rendezvous/membership.hpp"

#include <tutti/error.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::detail {

class Flight;
class GroupTable;

class Verdicts {
 public:
    /// All must outlive it; `membership` and what `flight` is attached to exist before anything is told.
    Verdicts(int rank, int size, std::string group, GroupTable& groups, Flight& flight,
             const std::unique_ptr<rendezvous::Membership>& membership)
        : rank_(rank),
          size_(size),
          group_(std::move(group)),
          groups_(groups),
          flight_(flight),
          membership_(membership),
          health_(rank) {}

    int rank() const noexcept { return rank_; }
    Health& health() noexcept { return health_; }
    const Health& health() const noexcept { return health_; }
    /// A verdict has come: this rank says what it was doing, if it is asked, and remembers it. Any thread.
    void hear(const rendezvous::Verdict& verdict);
    /// Fails the world by the verdict that has come; under the lock.
    void apply();
    /// Every rank hears of it; `here`: this one too.
    void tell(const rendezvous::Verdict& verdict, bool here);
    /// What a rank sent was changed on the way: all hear of it.
    void tell_of_damage(int from, const std::string& what);
    /// While the ranks join: this one cannot.
    void tell_of_failed_join(const std::exception& error);
    /// Tells every rank of a mismatch or a timeout, and waits until all that can be reached have heard it. True: this
    /// rank is to judge; false: another is.
    bool accuse(const rendezvous::Verdict& accusation);
    /// Fails as the rank says that judges; under the lock.
    void fail_as_told(ErrorContext context);
    /// Ends the world on all ranks; not under the lock.
    void abort(const std::string& reason);

    /// Why nothing comes from a rank any more: it has left the world, or cannot be reached. All that it sent has been
    /// read, but what waits for that may not have moved on yet. Nothing: something may come.
    std::optional<rendezvous::Verdict> gone(int peer) const;
    /// Ranks that have left, whether or not all that they sent has been read; under the lock.
    std::vector<int> departed() const;
    /// Health::gone_for_good() of this world.
    std::vector<int> gone_for_good() const { return health_.gone_for_good(membership_->cards()); }
    /// Whether that rank's process listens no more: it is dead, or has let go of this world. Takes a round trip.
    bool is_deaf(int rank) const;

 private:
    const int rank_, size_;
    const std::string group_;
    GroupTable& groups_;
    Flight& flight_;
    const std::unique_ptr<rendezvous::Membership>& membership_;
    Health health_;
};

}  // namespace tutti::detail
