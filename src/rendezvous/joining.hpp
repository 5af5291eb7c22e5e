// Joining: how a rank and the others come together, by way of their store. It costs three requests: the rank makes its
// will, so that the others learn of its end, writes its card, and reads the table that rank 0 makes of all cards
// (table.hpp). Where several worlds meet in one store it first asks which is the newest (attempt.hpp).
//
// Threads: one; used once.
#pragma once

#include "core/unique_fd.hpp"
#include "rendezvous/endpoint.hpp"
#include "rendezvous/membership_options.hpp"
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
    void begin();
    Card listen();
    Table meet(const Card& own, const UniqueFd& wakeup);
    bool put(const Card& own);
    Table await_table(const UniqueFd& wakeup);
    Table gather(Card own, const UniqueFd& wakeup);
    std::vector<int> await_cards(std::vector<Card>& cards);
    void compare_encryption(const std::vector<Card>& cards);
    void settle_addresses(std::vector<Card>& cards);
    Table accept(const std::string& table) const;
    [[noreturn]] void refuse(const Failure& failure);
    bool may_have_next() const noexcept { return options_.attempt != nullptr && options_.attempt->may_have_next(); }
    void note_entered() const noexcept {
        if (options_.attempt != nullptr) options_.attempt->note_entered();
    }
    std::string worlds_before() const;
    Milliseconds left() const;

    MembershipOptions& options_;
    Endpoint& endpoint_;
    Store meeting_;
    std::string before_;  // in words: the process that had this rank in an attempt that is over
};

}  // namespace tutti::rendezvous
