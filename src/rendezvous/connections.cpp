// How the ranks of a world reach each other, and which connections they accept.
#include "core/log.hpp"
#include "rendezvous/membership_parts.hpp"
#include "rendezvous/place.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>

namespace tutti::rendezvous {
namespace {

constexpr std::size_t newcomers_max = 256;  // well below the usual limit of descriptors
constexpr std::chrono::seconds connect_attempt{3};

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

// Its name; none where it cannot be had, as in a sandbox that forbids such sockets.
std::string Membership::open_door() {
    const std::string name = fmt::format("tutti/lifelines/{}/{:x}", ::getpid(), random_id());
    try {
        door_ = fork_guard::GuardedFd(net::listen_unix(name));
        return name;
    } catch (const DistNetworkError&) {
        return {};
    }
}

bool Membership::near(int rank) const {
    return are_near(cards_[static_cast<std::size_t>(rank)], cards_[static_cast<std::size_t>(options_.rank)]);
}

bool Membership::runs_at_other_end(int rank, const UniqueFd& fd) const {
    try {
        return net::peer_uid(fd.get()) == ::geteuid() &&
               net::peer_pid(fd.get()) == cards_[static_cast<std::size_t>(rank)].process;
    } catch (const DistNetworkError&) {
        return false;
    }
}

// Connects to the door of a rank of this host; nothing where it has none, or another user's process opens.
UniqueFd Membership::knock(int rank) const {
    const std::string& door = cards_[static_cast<std::size_t>(rank)].door;
    if (door.empty() || !near(rank)) return {};
    try {
        UniqueFd fd = net::connect_unix(door, Deadline::after(Clock::duration::zero()), nullptr);
        return runs_at_other_end(rank, fd) ? std::move(fd) : UniqueFd();
    } catch (const DistError&) {
        return {};
    }
}

security::Connection Membership::connect(int rank, const Deadline& deadline, const AbortFlag* abort) {
    return dial(rank, false, deadline, abort);
}

bool Membership::encrypts(int rank) const {
    const Card& own = cards_[static_cast<std::size_t>(options_.rank)];
    return own.tls && network_of(cards_[static_cast<std::size_t>(rank)].host_key) != network_of(own.host_key);
}

// The identity of a connection by TLS; its key is derived for these very words.
std::string Membership::tls_identity(int from, int to) const {
    return fmt::format("tutti 1 world {:016x} rank {} to rank {}", world_id_, from, to);
}

bool Membership::is_for_this_rank(std::string_view identity) const {
    constexpr std::string_view before = " rank ";
    const std::string_view number = identity.substr(std::min(identity.find(before), identity.size()));
    if (number.size() <= before.size()) return false;
    int from = -1;
    std::from_chars(number.data() + before.size(), number.data() + number.size(), from);
    return from >= 0 && from < options_.world_size && from != options_.rank && encrypts(from) &&
           identity == tls_identity(from, options_.rank);
}

// Both ends prove themselves to each other. Errors name the rank: nothing else tells of an end that a stranger blocks.
security::Wire Membership::prove(int rank, int fd, const Deadline& deadline, const AbortFlag* abort) const {
    try {
        if (encrypts(rank)) return security::secure(fd, *secret_, tls_identity(options_.rank, rank), deadline, abort);
        security::authenticate(fd, *secret_, security::Role::connecting, "peer", deadline, abort);
        return {};
    } catch (const DistNetworkError& error) {
        if (error.code() != ErrorCode::security) throw;
        throw unsafe(rank, error);
    }
}

DistNetworkError Membership::unsafe(int rank, const DistNetworkError& cause) const {
    const Card& card = cards_[static_cast<std::size_t>(rank)];
    return DistNetworkError(
        fmt::format("rank {} has no safe connection to rank {} ({}, {}): {}", options_.rank, rank, card.host_name,
                    net::to_string({card.listen_host, card.listen_port}), cause.what()),
        {.operation = "init", .rank = options_.rank, .peer = rank, .hint = cause.context().hint}, cause.code());
}

security::Connection Membership::dial(int rank, bool lifeline, const Deadline& deadline, const AbortFlag* abort) {
    const Hello hello{world_id_, lifeline ? Hello::Purpose::lifeline : Hello::Purpose::data, options_.rank};
    const Card& card = cards_[static_cast<std::size_t>(rank)];
    for (;;) {
        UniqueFd fd = lifeline ? knock(rank) : UniqueFd();
        const bool vouched = static_cast<bool>(fd);
        if (!fd) fd = reach(card, deadline, abort);
        try {
            security::Wire wire;
            if (!vouched) wire = prove(rank, fd.get(), deadline, abort);
            wire.send_all(fd.get(), bytes_of(hello), deadline, abort, "hello");
            if (lifeline) {
                News answer;
                wire.receive_all(fd.get(), std::as_writable_bytes(std::span(&answer, 1)), deadline, abort, "lifeline");
                const News confirm{attached, options_.rank};
                wire.send_all(fd.get(), bytes_of(confirm), deadline, abort, "lifeline");
            }
            return {std::move(fd), std::move(wire)};
        } catch (const DistNetworkError& error) {
            // The rank closed before it answered: strangers crowd its door. A rank that is gone refuses the next
            // connection.
            if (error.code() == ErrorCode::security) throw;
            if (deadline.expired()) throw unsafe(rank, error);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

UniqueFd Membership::visit(int rank, const Deadline& deadline, const AbortFlag* abort) const {
    UniqueFd fd = knock(rank);
    if (!fd) {
        throw DistNetworkError(fmt::format("rank {} (pid {}) does not open its door to ranks of its host", rank,
                                           cards_[static_cast<std::size_t>(rank)].process),
                               {.operation = "init", .rank = options_.rank, .peer = rank});
    }
    const Hello hello{world_id_, Hello::Purpose::visit, options_.rank};
    net::send_all(fd.get(), bytes_of(hello), deadline, abort, "hello");
    return fd;
}

void Membership::accept_newcomers() {
    const auto admit = [this](auto newcomer) {
        // The oldest unproved newcomer goes first, so that silent strangers cannot keep a peer out.
        if (newcomers_.size() >= newcomers_max) newcomers_.erase(newcomers_.begin());
        newcomers_.push_back(std::move(newcomer));
    };
    while (auto fd = net::try_accept(listener_.get())) {
        // A rank that listened everywhere, since it could not know where the others are, has no business with
        // strangers.
        if (everywhere_ && all_are_here_ && !net::is_loopback(net::local_address(fd->get()).host)) continue;
        admit(std::make_unique<Newcomer>(std::move(*fd), *secret_,
                                         [this](std::string_view identity) { return is_for_this_rank(identity); }));
    }
    while (auto fd = door_ ? net::try_accept(door_.get()) : std::nullopt)
        admit(std::make_unique<Newcomer>(std::move(*fd)));
    for (auto& newcomer : newcomers_) welcome(*newcomer);
    std::erase_if(newcomers_, [](const auto& n) { return !n->fd; });
}

// Turns away a connection without proof, or of another kind than it should be. The log gets a line for the first of
// many.
void Membership::turn_away(Newcomer& n, std::string_view why) {
    const auto times = turned_away_.happened();
    try {
        if (times)
            TUTTI_WARN("rank {}: a connection from {} was refused: {}{}", options_.rank,
                       net::to_string(net::peer_address(n.fd.get())), why,
                       *times == 1 ? "" : fmt::format(" ({} such since the last line)", *times));
    } catch (const DistNetworkError&) {
        // It has gone already.
    }
    n.fd.reset();
}

// Goes on with one newcomer as far as its bytes allow; its descriptor is gone when it is done or refused.
void Membership::welcome(Newcomer& n) {
    using State = security::Entrance::State;
    std::array<std::byte, 4096> buffer;
    for (;;) {
        if (n.deadline.expired()) return n.fd.reset();
        if (!n.proved && n.entrance->state() == State::failed) return turn_away(n, n.entrance->error());
        if (!n.proved && n.entrance->state() == State::done) {
            n.wire = security::Wire(n.entrance->take_tls());
            n.proved = true;
        }
        const std::size_t want = n.proved ? sizeof(Hello) - n.hello.size() : n.entrance->wanted();
        const auto into = std::span(buffer).first(std::min(want, buffer.size()));
        const ssize_t count =
            n.proved ? n.wire.receive(n.fd.get(), into) : ::recv(n.fd.get(), into.data(), into.size(), MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (count < 0 && errno == EBADMSG) return turn_away(n, n.wire.error());
        if (count <= 0) return n.fd.reset();
        const auto got = into.first(static_cast<std::size_t>(count));
        if (!n.proved) {
            n.entrance->consume(got);
            const auto output = n.entrance->output();  // short: a fresh socket's buffer takes it
            if (!output.empty()) (void)!::send(n.fd.get(), output.data(), output.size(), MSG_NOSIGNAL);
            n.entrance->sent(output.size());
            continue;
        }
        n.hello.append(reinterpret_cast<const char*>(got.data()), got.size());
        if (n.hello.size() < sizeof(Hello)) continue;
        Hello hello;
        std::memcpy(&hello, n.hello.data(), sizeof hello);
        if (hello.world != world_id_ || hello.rank < 0 || hello.rank >= options_.world_size) return n.fd.reset();
        const bool at_door = !n.entrance;
        if (!at_door && n.wire.is_encrypted() != encrypts(hello.rank))
            return turn_away(n,
                             fmt::format("rank {} comes {} TLS", hello.rank, encrypts(hello.rank) ? "without" : "by"));
        if (at_door && (hello.purpose == Hello::Purpose::data || !runs_at_other_end(hello.rank, n.fd)))
            return n.fd.reset();
        if (hello.purpose == Hello::Purpose::visit) {
            if (at_door && options_.on_visit) options_.on_visit(n.fd);
            return n.fd.reset();
        }
        const std::lock_guard lock(mutex_);
        if (hello.purpose == Hello::Purpose::data) {
            incoming_.emplace_back(hello.rank, security::Connection{std::move(n.fd), std::move(n.wire)});
            has_incoming_.store(true, std::memory_order_release);
            wake();
        } else {
            const News words{attached, options_.rank};
            n.wire.post(n.fd.get(), bytes_of(words));
            add_edge(hello.rank, {std::move(n.fd), std::move(n.wire)}, false, false);
        }
        return;
    }
}

std::vector<std::pair<int, security::Connection>> Membership::take_incoming() {
    const std::lock_guard lock(mutex_);
    eventfd_t value = 0;
    ::eventfd_read(wake_.get(), &value);
    has_incoming_.store(false, std::memory_order_release);
    return std::exchange(incoming_, {});
}

}  // namespace tutti::rendezvous
