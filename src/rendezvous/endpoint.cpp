#include "rendezvous/endpoint.hpp"

#include "core/socket.hpp"
#include "core/unix_socket.hpp"
#include "security/secret.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <span>

namespace tutti::rendezvous {

// No local endpoint where it cannot be had, as in a sandbox that forbids such sockets.
void Endpoint::open(const std::string& host, const Deadline& until_known) {
    host_ = host;
    tcp_ = fork_guard::GuardedFd(net::listen_tcp(listens_everywhere() ? "" : host, 0, until_known));
    const net::Address own = net::local_address(tcp_.get());
    port_ = own.port;
    is_loopback_ = net::is_loopback(own.host);
    if (listens_everywhere() || !is_loopback_) pulse_.emplace(listens_everywhere() ? std::string() : own.host);
    std::uint64_t id = 0;
    security::random_bytes(std::as_writable_bytes(std::span(&id, 1)));
    const std::string name = fmt::format("tutti/lifelines/{}/{:x}", ::getpid(), id);
    try {
        local_ = fork_guard::GuardedFd(net::listen_unix(name));
        local_name_ = name;
    } catch (const DistNetworkError&) {  // NOLINT(bugprone-empty-catch)
    }
}

void Endpoint::describe(Card& card) const {
    card.listen_host = host_;
    card.listen_port = port_;
    card.local_endpoint = local_name_;
    card.pulse_port = pulse_ ? pulse_->port() : std::uint16_t{0};
}

void Endpoint::close_local() {
    if (local_) ::shutdown(local_.get(), SHUT_RD);
}

}  // namespace tutti::rendezvous
