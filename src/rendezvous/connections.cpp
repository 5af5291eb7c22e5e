// How the ranks of a world reach each other, and who is let in.
#include "rendezvous/membership_parts.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

namespace tutti::rendezvous {
namespace {

constexpr std::size_t newcomers_max = 256;  // well below the usual limit of descriptors
constexpr std::chrono::seconds connect_attempt{3};

// A host that cannot be reached is tried afresh: the kernel would repeat itself ever more seldom. Whoever has a card
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

// At the door of a rank of this host; nothing where it has none, or somebody else opens.
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

UniqueFd Membership::connect(int rank, const Deadline& deadline, const AbortFlag* abort) {
    return dial(rank, false, deadline, abort);
}

UniqueFd Membership::dial(int rank, bool lifeline, const Deadline& deadline, const AbortFlag* abort) {
    const Hello hello{world_id_, lifeline ? Hello::Purpose::lifeline : Hello::Purpose::data, options_.rank};
    const Card& card = cards_[static_cast<std::size_t>(rank)];
    for (;;) {
        UniqueFd fd = lifeline ? knock(rank) : UniqueFd();
        const bool vouched = static_cast<bool>(fd);
        if (!fd) fd = reach(card, deadline, abort);
        try {
            if (!vouched)
                security::authenticate(fd.get(), *secret_, security::Role::connecting, "peer", deadline, abort);
            net::send_all(fd.get(), bytes_of(hello), deadline, abort, "hello");
            if (lifeline) {
                News answer;
                net::recv_all(fd.get(), std::as_writable_bytes(std::span(&answer, 1)), deadline, abort, "lifeline");
                const News confirm{attached, options_.rank};
                net::send_all(fd.get(), bytes_of(confirm), deadline, abort, "lifeline");
            }
            return fd;
        } catch (const DistNetworkError& error) {
            // Closed before it answered: strangers crowd its door. One that is gone refuses the next connection.
            if (error.code() == ErrorCode::security || deadline.expired()) throw;
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
        // The oldest that has proved nothing goes first, so that silent strangers cannot keep a peer out.
        if (newcomers_.size() >= newcomers_max) newcomers_.erase(newcomers_.begin());
        newcomers_.push_back(std::move(newcomer));
    };
    while (auto fd = net::try_accept(listener_.get())) {
        // A rank that listened everywhere, since it could not know where the others are, has no business with
        // strangers.
        if (everywhere_ && all_are_here_ && !net::is_loopback(net::local_address(fd->get()).host)) continue;
        admit(std::make_unique<Newcomer>(std::move(*fd), *secret_));
    }
    while (auto fd = door_ ? net::try_accept(door_.get()) : std::nullopt)
        admit(std::make_unique<Newcomer>(std::move(*fd)));
    for (auto& newcomer : newcomers_) welcome(*newcomer);
    std::erase_if(newcomers_, [](const auto& n) { return !n->fd; });
}

// Goes on with one newcomer as far as its bytes allow; its descriptor is gone when it is done or refused.
void Membership::welcome(Newcomer& n) {
    using State = security::Handshake::State;
    std::array<std::byte, 128> buffer;
    for (;;) {
        if (n.deadline.expired() || (n.handshake && n.handshake->state() == State::failed)) return n.fd.reset();
        const bool proved = !n.handshake || n.handshake->state() == State::done;
        const std::size_t want = proved ? sizeof(Hello) - n.hello.size() : n.handshake->wanted();
        const ssize_t count = ::recv(n.fd.get(), buffer.data(), std::min(want, buffer.size()), 0);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (count <= 0) return n.fd.reset();
        const auto got = std::span(buffer).first(static_cast<std::size_t>(count));
        if (!proved) {
            n.handshake->consume(got);
            const auto output = n.handshake->output();  // short: a fresh socket's buffer takes it
            if (!output.empty()) (void)!::send(n.fd.get(), output.data(), output.size(), MSG_NOSIGNAL);
            n.handshake->sent(output.size());
            continue;
        }
        n.hello.append(reinterpret_cast<const char*>(got.data()), got.size());
        if (n.hello.size() < sizeof(Hello)) continue;
        Hello hello;
        std::memcpy(&hello, n.hello.data(), sizeof hello);
        if (hello.world != world_id_ || hello.rank < 0 || hello.rank >= options_.world_size) return n.fd.reset();
        const bool at_door = !n.handshake;
        if (at_door && (hello.purpose == Hello::Purpose::data || !runs_at_other_end(hello.rank, n.fd)))
            return n.fd.reset();
        if (hello.purpose == Hello::Purpose::visit) {
            if (at_door && options_.on_visit) options_.on_visit(n.fd);
            return n.fd.reset();
        }
        const std::lock_guard lock(mutex_);
        if (hello.purpose == Hello::Purpose::data) {
            incoming_.emplace_back(hello.rank, std::move(n.fd));
            has_incoming_.store(true, std::memory_order_release);
            wake();
        } else {
            const News words{attached, options_.rank};
            (void)!::send(n.fd.get(), &words, sizeof words, MSG_NOSIGNAL | MSG_DONTWAIT);
            add_edge(hello.rank, std::move(n.fd), false, false);
        }
        return;
    }
}

std::vector<std::pair<int, UniqueFd>> Membership::take_incoming() {
    const std::lock_guard lock(mutex_);
    eventfd_t value = 0;
    ::eventfd_read(wake_.get(), &value);
    has_incoming_.store(false, std::memory_order_release);
    return std::exchange(incoming_, {});
}

}  // namespace tutti::rendezvous
