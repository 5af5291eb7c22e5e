// Endpoint: where a rank can be reached: a TCP socket, an abstract Unix socket for ranks of its host (the local
// endpoint), and its pulse. It is open before the others learn of this rank, and until it leaves.
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
    /// Of a listen_host: every address of the host.
    static constexpr const char* every_address = "0.0.0.0";

    /// Listens at `host`, as soon as that name is known, and at the local endpoint where the system lets it; once.
    /// Throws DistNetworkError.
    void open(const std::string& host, const Deadline& until_known);

    /// Its part of the rank's card.
    void describe(Card& card) const;
    bool listens_everywhere() const noexcept { return host_ == every_address; }
    /// Only ranks of this host reach it.
    bool is_loopback() const noexcept { return is_loopback_; }
    int tcp_fd() const noexcept { return tcp_.get(); }
    /// -1: there is none.
    int local_fd() const noexcept { return local_.get(); }
    /// All others see this process itself.
    void end_pulse() { pulse_.reset(); }
    /// No connection comes to the local endpoint any more; those that have come can still be accepted.
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
