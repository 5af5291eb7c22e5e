// Endpoint: the sockets at which other ranks reach this rank: TCP; an abstract Unix socket for ranks of its host (the
// local endpoint); and its pulse, a port that is open while this process lives. The endpoint opens before the others
// learn of this rank, and closes when the rank leaves.
//
// Threads: one at a time; the descriptors may be polled by any.
#pragma once

#include "core/deadline.hpp"
#include "core/fork_guard.hpp"
#include "core/unique_fd.hpp"
#include "rendezvous/card.hpp"
#include "rendezvous/pulse.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace tutti::rendezvous {

class Endpoint {
 public:
    /// The listen_host that means every address of the host.
    static constexpr const char* every_address = "0.0.0.0";

    /// Listens on `host`, waiting until `until_known` for this name to resolve, and on the local endpoint if the system
    /// allows one. Call it once. Throws DistNetworkError.
    void open(const std::string& host, const Deadline& until_known);

    /// Fills in the endpoint's fields of the rank's card.
    void describe(Card& card) const;
    bool listens_everywhere() const noexcept { return host_ == every_address; }
    /// Whether only ranks of this host can reach the endpoint.
    bool is_loopback() const noexcept { return is_loopback_; }
    int tcp_fd() const noexcept { return tcp_.get(); }
    /// -1: there is none.
    int local_fd() const noexcept { return local_.get(); }
    /// Closes the pulse; call it when all other ranks can watch this process by its id.
    void end_pulse() { pulse_.reset(); }
    /// Stops new connections to the local endpoint; connections already queued can still be accepted.
    void close_local();

 private:
    std::string host_;
    std::uint16_t port_ = 0;
    bool is_loopback_ = false;
    std::string local_name_;
    fork_guard::GuardedFd tcp_, local_;
    std::optional<Pulse> pulse_;
};

}  // namespace tutti::rendezvous
