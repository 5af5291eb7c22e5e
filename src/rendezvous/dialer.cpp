#include "rendezvous/dialer.hpp"

#include "core/socket.hpp"
#include "core/unix_socket.hpp"
#include "rendezvous/news_frame.hpp"
#include "security/handshake.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace tutti::rendezvous {
namespace {

constexpr std::chrono::seconds connect_attempt{3};
constexpr std::chrono::milliseconds between_tries{10};

// This tries an unreachable host afresh: the kernel would repeat itself ever more seldom. A rank that has a card
// listens until it leaves.
UniqueFd reach(const Card& card, const Deadline& deadline, const AbortFlag* abort) {
    for (;;) {
        const Deadline attempt = Deadline::after(std::min<Clock::duration>(deadline.remaining(), connect_attempt));
        try {
            return net::connect_tcp({card.listen_host, card.listen_port}, attempt, abort, net::Refusal::no_longer);
        } catch (const DistNetworkError&) {
            if (!attempt.expired() || deadline.expired()) throw;
        }
    }
}

}  // namespace

bool runs_at_other_end(const Card& card, const UniqueFd& fd) {
    try {
        return net::peer_uid(fd.get()) == ::geteuid() && net::peer_pid(fd.get()) == card.process;
    } catch (const DistNetworkError&) {
        return false;
    }
}

// Nothing where the rank has no local endpoint, or another user's process has its name.
UniqueFd Dialer::connect_local(int rank) const {
    const Card& card = roster_.card(rank);
    if (card.local_endpoint.empty() || !roster_.is_near(rank)) return {};
    try {
        UniqueFd fd = net::connect_unix(card.local_endpoint, Deadline::after(Clock::duration::zero()), nullptr);
        return runs_at_other_end(card, fd) ? std::move(fd) : UniqueFd();
    } catch (const DistError&) {
        return {};
    }
}

security::Connection Dialer::connect(int rank, const Deadline& deadline, const AbortFlag* abort) const {
    return dial(rank, Hello::Purpose::data, deadline, abort);
}

security::Connection Dialer::attach(int rank, const Deadline& deadline, const AbortFlag* abort) const {
    return dial(rank, Hello::Purpose::lifeline, deadline, abort);
}

UniqueFd Dialer::attach_unseen(int rank) const {
    UniqueFd fd = connect_local(rank);
    if (!fd) return {};
    const Hello words = hello(Hello::Purpose::lifeline);
    const bool said = ::send(fd.get(), &words, sizeof words, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof words;
    return said ? std::move(fd) : UniqueFd();
}

UniqueFd Dialer::request_memory(int rank, const Deadline& deadline, const AbortFlag* abort) const {
    UniqueFd fd = connect_local(rank);
    if (!fd) {
        throw DistNetworkError(fmt::format("rank {} (pid {}) has no local endpoint to which this rank can connect",
                                           rank, roster_.card(rank).process),
                               {.operation = "init", .rank = roster_.rank, .peer = rank});
    }
    net::send_all(fd.get(), hello(Hello::Purpose::memory).bytes(), deadline, abort, "hello");
    return fd;
}

security::Connection Dialer::dial(int rank, Hello::Purpose purpose, const Deadline& deadline,
                                  const AbortFlag* abort) const {
    const bool lifeline = purpose == Hello::Purpose::lifeline;
    for (;;) {
        UniqueFd fd = lifeline ? connect_local(rank) : UniqueFd();
        const bool vouched = static_cast<bool>(fd);
        if (!fd) fd = reach(roster_.card(rank), deadline, abort);
        try {
            security::Wire wire;
            if (!vouched) wire = prove(rank, fd.get(), deadline, abort);
            wire.send_all(fd.get(), hello(purpose).bytes(), deadline, abort, "hello");
            if (lifeline) await_attached(fd.get(), wire, deadline, abort);
            return {std::move(fd), std::move(wire)};
        } catch (const DistNetworkError& error) {
            // The rank closed before it answered: strangers crowd its endpoint. A rank that is gone refuses the next
            // connection.
            if (error.code() == ErrorCode::security) throw;
            if (deadline.expired()) throw unsafe(rank, error);
        }
        std::this_thread::sleep_for(between_tries);
    }
}

// The other end may look only after this one has given up, has left and has ended: that is not to look like a death.
void Dialer::await_attached(int fd, security::Wire& wire, const Deadline& deadline, const AbortFlag* abort) const {
    NewsFrame attached;
    try {
        wire.receive_all(fd, std::as_writable_bytes(std::span(&attached, 1)), deadline, abort, "lifeline");
    } catch (...) {
        const std::string moved = to_bytes(Word::moved, roster_.rank);
        wire.post(fd, std::as_bytes(std::span(moved)));
        throw;
    }
}

// Both ends prove themselves to each other. Errors name the rank: nothing else tells of an end that a stranger blocks.
security::Wire Dialer::prove(int rank, int fd, const Deadline& deadline, const AbortFlag* abort) const {
    try {
        if (roster_.encrypts(rank))
            return security::secure(fd, roster_.secret, roster_.tls_identity(roster_.rank, rank), deadline, abort);
        security::authenticate(fd, roster_.secret, security::Role::connecting, "peer", deadline, abort);
        return {};
    } catch (const DistNetworkError& error) {
        if (error.code() != ErrorCode::security) throw;
        throw unsafe(rank, error);
    }
}

DistNetworkError Dialer::unsafe(int rank, const DistNetworkError& cause) const {
    const Card& card = roster_.card(rank);
    return DistNetworkError(
        fmt::format("rank {} has no safe connection to rank {} ({}, {}): {}", roster_.rank, rank, card.host_name,
                    net::to_string({card.listen_host, card.listen_port}), cause.what()),
        {.operation = "init", .rank = roster_.rank, .peer = rank, .hint = cause.context().hint}, cause.code());
}

}  // namespace tutti::rendezvous
