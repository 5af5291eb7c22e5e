// Reception: the connections that come to a rank's endpoint, until it is known who is at their other end and what for.
// Over TCP a newcomer proves itself; at the local endpoint the kernel tells which process it is.
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

/// A connection of another rank.
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

    /// Goes on with all newcomers as far as their bytes allow; those that have said what they come for. Never waits.
    std::vector<Arrival> accept();
    /// Some have come, and have not said all.
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
    const bool of_this_network_;  // all ranks are
    std::vector<std::unique_ptr<Newcomer>> newcomers_;
    RateLimit turned_away_;
};

}  // namespace tutti::rendezvous
