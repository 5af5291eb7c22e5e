// Reception: takes the connections that come to a rank's endpoint, until their Hello says which rank made them, and for
// what purpose. Over TCP a newcomer proves the secret; at the local endpoint the kernel identifies its process.
//
// Threads: one at a time.
#pragma once

#include "core/rate_limit.hpp"
#include "core/unique_fd.hpp"
#include "rendezvous/endpoint.hpp"
#include "rendezvous/hello.hpp"
#include "rendezvous/roster.hpp"
#include "security/wire.hpp"

#include <poll.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::rendezvous {

/// A connection from another rank.
struct Arrival {
    int rank = -1;
    Hello::Purpose purpose = Hello::Purpose::data;
    security::Connection connection;
};

class Reception {
 public:
    /// Both must outlive it.
    Reception(const Endpoint& endpoint, const Roster& roster);
    ~Reception();
    Reception(const Reception&) = delete;
    Reception& operator=(const Reception&) = delete;

    /// Processes the available input of all newcomers; returns those that have sent their Hello. Never waits.
    std::vector<Arrival> accept();
    /// Whether there are newcomers that have not sent their whole Hello.
    bool has_newcomers() const noexcept { return !newcomers_.empty(); }
    void pollables(std::vector<pollfd>& into) const;

 private:
    struct Newcomer;

    bool takes_tls_alone(const UniqueFd& fd) const;
    void admit(std::unique_ptr<Newcomer> newcomer);
    void receive(Newcomer& newcomer, std::vector<Arrival>& arrivals);
    static void prove(Newcomer& newcomer, std::span<const std::byte> bytes);
    void welcome(Newcomer& newcomer, const Hello& hello, std::vector<Arrival>& arrivals);
    void turn_away(Newcomer& newcomer, std::string_view why);

    const Endpoint& endpoint_;
    const Roster& roster_;
    const bool of_this_network_;  // Roster::is_of_one_network()
    std::vector<std::unique_ptr<Newcomer>> newcomers_;
    RateLimit turned_away_;
};

}  // namespace tutti::rendezvous
