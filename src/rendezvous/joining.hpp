// Joining: how a rank and the others become a world: they meet in their store (meeting.hpp), each with a card that says
// how it can be reached, and rank 0 makes the table of all cards. It costs three requests to the store; where several
// worlds meet there one after the other, one more (attempt.hpp).
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
    /// Opens the endpoint. Both must outlive it.
    Joining(MembershipOptions& options, Endpoint& endpoint) : options_(options), endpoint_(endpoint) {}

    /// Throws as Membership's constructor says.
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
    UniqueFd bell_;  // of a store that would have to be asked again and again
};

}  // namespace tutti::rendezvous
