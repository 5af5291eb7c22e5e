#include "rendezvous/reception.hpp"

#include "core/log.hpp"
#include "core/socket.hpp"
#include "rendezvous/dialer.hpp"
#include "security/entrance.hpp"
#include "security/handshake.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace tutti::rendezvous {
namespace {

constexpr std::size_t newcomers_max = 256;  // well below the usual limit of descriptors

}  // namespace

struct Reception::Newcomer {
    UniqueFd fd;
    std::optional<security::Entrance> entrance{};  // none at the local endpoint, where the kernel vouches
    bool proved = true;
    security::Wire wire{};
    Deadline deadline = Deadline::after(security::handshake_timeout());
    std::string hello{};

    bool is_local() const { return !entrance; }
};

Reception::Reception(const Endpoint& endpoint, const Roster& roster)
    : endpoint_(endpoint), roster_(roster), of_this_network_(roster.is_of_one_network()) {}

Reception::~Reception() = default;

void Reception::pollables(std::vector<pollfd>& into) const {
    into.push_back({endpoint_.tcp_fd(), POLLIN, 0});
    if (endpoint_.local_fd() >= 0) into.push_back({endpoint_.local_fd(), POLLIN, 0});
    for (const auto& newcomer : newcomers_) into.push_back({newcomer->fd.get(), POLLIN, 0});
}

// The oldest newcomer goes first, so that silent strangers cannot keep a peer out.
void Reception::admit(std::unique_ptr<Newcomer> newcomer) {
    if (newcomers_.size() >= newcomers_max) newcomers_.erase(newcomers_.begin());
    newcomers_.push_back(std::move(newcomer));
}

std::vector<Arrival> Reception::accept() {
    while (auto fd = net::try_accept(endpoint_.tcp_fd())) {
        // A rank that listened everywhere, since it could not know where the others are, has no business with
        // strangers.
        if (endpoint_.listens_everywhere() && of_this_network_ && !net::is_loopback(net::local_address(fd->get()).host))
            continue;
        auto newcomer = std::make_unique<Newcomer>(std::move(*fd));
        newcomer->entrance.emplace(
            roster_.secret, "peer", [this](std::string_view identity) { return roster_.is_for_this_rank(identity); },
            takes_tls_alone(newcomer->fd) ? security::Entrance::Ways::tls_alone : security::Entrance::Ways::both);
        newcomer->proved = false;
        admit(std::move(newcomer));
    }
    while (auto fd = endpoint_.local_fd() >= 0 ? net::try_accept(endpoint_.local_fd()) : std::nullopt)
        admit(std::make_unique<Newcomer>(std::move(*fd)));
    std::vector<Arrival> arrivals;
    for (auto& newcomer : newcomers_) receive(*newcomer, arrivals);
    std::erase_if(newcomers_, [](const auto& newcomer) { return !newcomer->fd; });
    return arrivals;
}

// Ranks of this network have its addresses, and come without TLS.
bool Reception::takes_tls_alone(const UniqueFd& fd) const {
    try {
        return roster_.own().tls && !net::is_of_this_host(net::peer_address(fd.get()).host);
    } catch (const DistNetworkError&) {
        return true;  // it has gone already
    }
}

// Goes on with one newcomer; its descriptor is gone when it is welcome or refused.
void Reception::receive(Newcomer& n, std::vector<Arrival>& arrivals) {
    std::array<std::byte, 4096> buffer;
    for (;;) {
        if (n.deadline.expired()) return n.fd.reset();
        if (!n.proved && n.entrance->state() == security::Entrance::State::failed)
            return turn_away(n, n.entrance->error());
        if (!n.proved && n.entrance->state() == security::Entrance::State::done) {
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
            prove(n, got);
            continue;
        }
        n.hello.append(reinterpret_cast<const char*>(got.data()), got.size());
        if (n.hello.size() < sizeof(Hello)) continue;
        Hello hello;
        std::memcpy(&hello, n.hello.data(), sizeof hello);
        return welcome(n, hello, arrivals);
    }
}

void Reception::prove(Newcomer& n, std::span<const std::byte> bytes) {
    n.entrance->consume(bytes);
    const auto output = n.entrance->output();  // short: a fresh socket's buffer takes it
    if (!output.empty()) (void)!::send(n.fd.get(), output.data(), output.size(), MSG_NOSIGNAL);
    n.entrance->sent(output.size());
}

void Reception::welcome(Newcomer& n, const Hello& hello, std::vector<Arrival>& arrivals) {
    using Purpose = Hello::Purpose;
    if (hello.world != roster_.world || !roster_.has(hello.rank)) return n.fd.reset();
    const bool expects_tls = roster_.encrypts(hello.rank);
    if (!n.is_local() && n.wire.is_encrypted() != expects_tls)
        return turn_away(n, fmt::format("rank {} comes {} TLS", hello.rank, expects_tls ? "without" : "by"));
    // Each kind of connection has its endpoint; lifelines come to either.
    if (n.is_local() ? hello.purpose == Purpose::data || !runs_at_other_end(roster_.card(hello.rank), n.fd)
                     : hello.purpose == Purpose::memory)
        return n.fd.reset();
    arrivals.push_back({hello.rank, hello.purpose, {std::move(n.fd), std::move(n.wire)}});
}

// A connection without proof, or of another kind than it should be. The log gets a line for the first of many.
void Reception::turn_away(Newcomer& n, std::string_view why) {
    const auto times = turned_away_.happened();
    try {
        if (times)
            TUTTI_WARN("rank {}: a connection from {} was refused: {}{}", roster_.rank,
                       net::to_string(net::peer_address(n.fd.get())), why,
                       *times == 1 ? "" : fmt::format(" ({} such since the last line)", *times));
    } catch (const DistNetworkError&) {  // NOLINT(bugprone-empty-catch): it has gone already
    }
    n.fd.reset();
}

}  // namespace tutti::rendezvous
