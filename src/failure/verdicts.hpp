// Verdicts: the ranks' words about each other in a world, and how a world ends by them. A rank that notices trouble
// accuses, and tells all; the one whose accusation counts judges; all fail with its verdict.
//
// Threads: any; functions that fail the world need its lock.
#pragma once

#include "failure/failure_inquiry.hpp"
#include "failure/health.hpp"
#include "operation/failable.hpp"
#include "rendezvous/membership.hpp"
#include "transport/links.hpp"
#include "transport/mailbox.hpp"

#include <tutti/error.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::detail {

class ForeignStreams;
class GroupTable;

class Verdicts final : public WorldFailures {
 public:
    /// All must outlive it; `membership` exists before any call.
    Verdicts(int rank, int size, std::string group, GroupTable& groups, Failable& in_flight,
             const std::unique_ptr<rendezvous::Membership>& membership)
        : rank_(rank),
          size_(size),
          group_(std::move(group)),
          groups_(groups),
          in_flight_(in_flight),
          membership_(membership),
          health_(rank) {}

    /// The ways to the other ranks, before anything is in flight. They must outlive this.
    void attach(transport::Links& links, const transport::Mailbox& mailbox) noexcept {
        links_ = &links;
        mailbox_ = &mailbox;
    }

    int rank() const noexcept { return rank_; }
    Health& health() noexcept { return health_; }
    const Health& health() const noexcept { return health_; }
    /// A verdict has come: this rank says what it was doing, if asked, and remembers the verdict. Any thread.
    void hear(const rendezvous::Verdict& verdict);
    /// Fails the world with the verdict that has come; under the lock.
    void apply();
    /// Every rank hears of it; `here`: this one too.
    void tell(const rendezvous::Verdict& verdict, bool here) override;
    /// Bytes from a rank changed on the way: all hear of it.
    void tell_of_damage(int from, const std::string& what);
    /// While the ranks join: this one has failed to.
    void tell_of_failed_join(const std::exception& error);
    /// Tells every rank of a mismatch or a timeout, and waits until all that can be reached have heard it. True: this
    /// rank is to judge; false: another is.
    bool accuse(const rendezvous::Verdict& accusation) override;
    /// Fails with the verdict of the rank that judges; under the lock.
    void fail_as_told(ErrorContext context) override;
    /// This rank cannot do its part, and says why: the world fails on all ranks; under the lock.
    void fail_everywhere(const std::string& reason);
    /// Ends the world on all ranks; not under the lock.
    void abort(const std::string& reason);

    /// Why nothing comes from a rank any more: it has left the world, or cannot be reached. This rank has read all that
    /// it sent, but operations that wait for that may not have moved on yet. Nothing: something may come.
    std::optional<rendezvous::Verdict> gone(int peer) const override { return gone(peer, nullptr); }
    /// The same of a group whose bytes a transport of others carries; null: the world's streams do.
    std::optional<rendezvous::Verdict> gone(int peer, ForeignStreams* transport) const;
    /// Ranks that have left, whether or not all that they sent has been read; under the lock.
    std::vector<int> departed() const override;
    std::vector<int> silent() const override { return health_.silent(); }
    /// The world fails, and this process's launcher hears why; under the lock.
    void fail(const std::exception_ptr& error) override;
    bool failing() const override;
    /// Health::gone_for_good() of this world.
    std::vector<int> gone_for_good() const { return health_.gone_for_good(membership_->cards()); }
    /// Whether that rank's process no longer listens: it is dead, or has let go of this world. Takes a round trip.
    bool is_deaf(int rank) const;

 private:
    const int rank_, size_;
    const std::string group_;
    GroupTable& groups_;
    Failable& in_flight_;
    transport::Links* links_ = nullptr;
    const transport::Mailbox* mailbox_ = nullptr;
    const std::unique_ptr<rendezvous::Membership>& membership_;
    Health health_;
};

}  // namespace tutti::detail
