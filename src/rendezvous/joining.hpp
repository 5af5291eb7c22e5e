// Joining: how a rank and the others come together, by way of their store. It costs three requests: the rank makes its
// will, so that the others learn of its end, writes its card, and reads the table that rank 0 makes of all cards
// (table.hpp).
//
// Threads: one; used once.
#pragma once

#include "core/unique_fd.hpp"
#include "rendezvous/endpoint.hpp"
#include "rendezvous/membership.hpp"
#include "rendezvous/roster.hpp"
#include "rendezvous/table.hpp"

#include <tutti/store.hpp>

#include <vector>

namespace tutti::rendezvous {

class Joining {
 public:
    /// Opens the endpoint. Both must outlive it.
    Joining(MembershipOptions& options, Endpoint& endpoint) : options_(options), endpoint_(endpoint) {}

    /// Throws as Membership's constructor says.
    Roster run();

 private:
    Card listen();
    void put(const Card& own);
    Table await_table(const UniqueFd& wakeup);
    Table gather(Card own, const UniqueFd& wakeup);
    std::vector<int> await_cards(std::vector<Card>& cards);
    void compare_encryption(const std::vector<Card>& cards);
    void settle_addresses(std::vector<Card>& cards);
    [[noreturn]] void refuse(const Failure& failure);
    Milliseconds left() const;

    MembershipOptions& options_;
    Endpoint& endpoint_;
};

}  // namespace tutti::rendezvous
