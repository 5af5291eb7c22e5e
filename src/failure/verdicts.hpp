// Verdicts: how the ranks of a world accuse each other of failures, and how the world fails. A rank that notices a
// failure sends an accusation to all ranks; the rank whose accusation prevails (the judge) writes the verdict; all
// ranks fail with it.
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
    /// All references must outlive it; `membership` must be set before any other call.
    Verdicts(int rank, int size, std::string group, GroupTable& groups, Failable& in_flight,
             const std::unique_ptr<rendezvous::Membership>& membership)
        : rank_(rank),
          size_(size),
          group_(std::move(group)),
          groups_(groups),
          in_flight_(in_flight),
          membership_(membership),
          health_(rank) {}

    /// Sets the connections to the other ranks, before anything is in flight. They must outlive this.
    void attach(transport::Links& links, const transport::Mailbox& mailbox) noexcept {
        links_ = &links;
        mailbox_ = &mailbox;
    }

    int rank() const noexcept { return rank_; }
    Health& health() noexcept { return health_; }
    const Health& health() const noexcept { return health_; }
    /// Receives a verdict or an accusation: on an accusation, publishes this rank's recent operations. Any thread.
    void hear(const rendezvous::Verdict& verdict);
    /// Fails the world with the verdict that has been received; under the lock.
    void apply();
    /// Sends the verdict to every other rank; `here`: also to this one.
    void tell(const rendezvous::Verdict& verdict, bool here) override;
    /// Bytes from a rank were corrupted in transit: tells all ranks.
    void tell_of_damage(int from, const std::string& what);
    /// Tells all ranks that this one has failed to join.
    void tell_of_failed_join(const std::exception& error);
    /// Sends the accusation (a mismatch or a timeout) to every rank, and waits until all reachable ranks have received
    /// it. True: this rank is the judge; false: another rank is.
    bool accuse(const rendezvous::Verdict& accusation) override;
    /// Waits for the judge's verdict, and fails the world with it; under the lock.
    void fail_as_told(ErrorContext context) override;
    /// This rank cannot continue, because of `reason`: fails the world on all ranks; under the lock.
    void fail_everywhere(const std::string& reason);
    /// Ends the world on all ranks; not under the lock.
    void abort(const std::string& reason);

    /// Why no more data will arrive from a rank: it has left the world, or cannot be reached. This rank has read all
    /// that it sent, but may not have completed the operations that wait for it. nullopt: data may still arrive.
    std::optional<rendezvous::Verdict> gone(int peer) const override { return gone(peer, nullptr); }
    /// As gone(peer), in a group whose bytes `transport` carries; null: the world's streams carry them.
    std::optional<rendezvous::Verdict> gone(int peer, ForeignStreams* transport) const;
    /// The ranks that have left, whether or not this rank has read all that they sent; under the lock.
    std::vector<int> departed() const override;
    std::vector<int> silent() const override { return health_.silent(); }
    /// Fails the world, and reports the error to this process's launcher; under the lock.
    void fail(const std::exception_ptr& error) override;
    bool failing() const override;
    /// Health::gone_for_good() of this world.
    std::vector<int> gone_for_good() const { return health_.gone_for_good(membership_->cards()); }
    /// Whether the process of `rank` refuses connections: it is dead, or has destroyed this world. Takes a round trip.
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
