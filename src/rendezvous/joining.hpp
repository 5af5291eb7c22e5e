// Joining: how ranks form a world: they meet in their store (meeting.hpp), each with a card that says how the others
// reach it, and rank 0 makes the table of all cards. Each rank sends three requests to the store, or four where several
// worlds meet there one after the other (attempt.hpp).
//
// Threads: one; used once.
#pragma once

#include "core/unique_fd.hpp"
#include "rendezvous/endpoint.hpp"
#include "rendezvous/membership_options.hpp"
#include "rendezvous/roster.hpp"

#include <tutti/meeting.hpp>

#include <string>
#include <vector>

namespace tutti::rendezvous {

class Joining {
 public:
    /// run() opens the endpoint. Both arguments must outlive this object.
    Joining(MembershipOptions& options, Endpoint& endpoint) : options_(options), endpoint_(endpoint) {}

    /// Joins. Throws the errors of Membership's constructor.
    Roster run();

 private:
    Met meet();
    std::string listen();
    std::string make_table(const std::vector<std::string>& cards);
    void settle_addresses(std::vector<Card>& cards);
    void ring(const std::vector<std::string>& cards) const;
    std::string awaited(const std::vector<int>& missing, const std::string& process_before) const;

    MembershipOptions& options_;
    Endpoint& endpoint_;
    UniqueFd bell_;  // for a store without wakeups: rank 0's datagram arrives here
};

}  // namespace tutti::rendezvous
