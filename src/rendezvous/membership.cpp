#include "rendezvous/membership.hpp"

#include "core/env.hpp"
#include "core/this_host.hpp"
#include "object/codec.hpp"
#include "rendezvous/place.hpp"

#include <tutti/error.hpp>
#include <tutti/object.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::rendezvous {

TUTTI_OBJECT(Card, listen_host, listen_port, door, host_key, host_name, process, process_space, note);

namespace {

/// What a connection is for: the first thing said on it after the handshake.
struct Hello {
    enum class Purpose : std::uint32_t { lifeline = 1, data = 2, visit = 3 };
    std::uint64_t world = 0;
    Purpose purpose = Purpose::data;
    std::int32_t rank = -1;
};

/// A verdict on a lifeline.
struct News {
    VerdictKind kind = VerdictKind::aborted;
    std::int32_t rank = -1;
    std::uint32_t text_bytes = 0;
    std::uint32_t group = 0;
};
constexpr std::size_t news_text_max = 4096;
// Said between two neighbours only. A lifeline counts once both have said `attached` on it: until then either may think
// better of it, and its end is nobody's death. `moved`: this end has another parent now, its closing is no death
// either.
constexpr auto attached = static_cast<VerdictKind>(64);
constexpr auto moved = static_cast<VerdictKind>(65);

// Ranks mostly leave together: those that hear of it wait a little before they look for a parent which leaves as well.
constexpr std::chrono::milliseconds mend_delay{20};
constexpr std::chrono::milliseconds mend_attempt{300};
constexpr std::chrono::milliseconds linger_limit{1000};

constexpr std::size_t newcomers_max = 256;  // well below the usual limit of descriptors

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
    return {reinterpret_cast<const std::byte*>(&value), sizeof value};
}

std::uint64_t random_id() {
    std::uint64_t id = 0;
    security::random_bytes(std::as_writable_bytes(std::span(&id, 1)));
    return id;
}

// What rank 0 makes of all cards.
struct Table {
    std::vector<int> missing;  // nobody may go on when there are any
    std::vector<Card> cards;
    std::string decision;
    std::uint64_t world = 0;
    std::string secret;
};
TUTTI_OBJECT(Table, missing, cards, decision, world, secret);

// A failure may be nobody's: -1.
int least_rank(VerdictKind kind) {
    return kind == VerdictKind::timed_out || kind == VerdictKind::mismatch || kind == VerdictKind::aborted ? -1 : 0;
}

int parent_of(int rank) {
    return rank & (rank - 1);
}

thread_local bool serving = false;  // a membership's thread

}  // namespace

struct Membership::Edge {
    int rank = -1;
    fork_guard::GuardedFd fd;  // a child that kept it would hide this rank's death
    std::string inbox;
    bool up = false;         ///< to the parent (mutex_)
    bool confirmed = false;  ///< both ends have said `attached` (mutex_)
    bool left = false;       ///< its end is no death (mutex_)
};

struct Membership::Newcomer {
    UniqueFd fd;
    std::optional<security::Handshake> handshake;  ///< none at the door, where the kernel vouches
    Deadline deadline;
    std::string hello;
    explicit Newcomer(UniqueFd socket)
        : fd(std::move(socket)), deadline(Deadline::after(security::handshake_timeout())) {}
    Newcomer(UniqueFd socket, const security::Secret& secret) : Newcomer(std::move(socket)) {
        handshake.emplace(secret, security::Role::accepting, "peer");
    }
};

Membership::Membership(MembershipOptions options) : options_(std::move(options)) {
    wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    gone_.resize(static_cast<std::size_t>(options_.world_size));
    exchange_cards();
    for (int r = options_.rank + 1; r < options_.world_size; ++r) {
        if (parent_of(r) == options_.rank) awaited_.push_back(r);
    }
    thread_ = std::thread([this] {
        serving = true;
        serve();
    });
    try {
        build_tree();
    } catch (...) {
        stop();
        throw;
    }
}

Membership::~Membership() {
    leaving_ = true;
    flood({VerdictKind::left, options_.rank, {}});
    linger();
    stop();
}

bool Membership::on_own_thread() noexcept {
    return serving;
}

void Membership::stop() {
    closing_.raise("this rank leaves");
    changed_.notify_all();
    stopping_ = true;
    (void)!::eventfd_write(stop_.get(), 1);
    thread_.join();
    if (mender_.joinable()) mender_.join();
    accept_newcomers();  // who came just now is told that this rank has left
}

// Until nobody depends on this rank: children are attached elsewhere or leave too. News are passed on meanwhile.
void Membership::linger() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, linger_limit, [this] {
        return fatal_ || (awaited_.empty() && std::ranges::none_of(edges_, [](const auto& edge) {
                              return edge->fd && !edge->up && !edge->left;
                          }));
    });
}

void Membership::exchange_cards() {
    const int n = options_.world_size;
    Store& store = options_.store;
    const auto left = [&] { return std::chrono::ceil<Milliseconds>(options_.deadline.remaining()); };
    std::string host = options_.listen_host;
    if (host.empty()) host = env::get("TUTTI_HOST").value_or(store.backend()->local_host());
    if (host.empty()) host = "127.0.0.1";  // a store of one host
    listener_ = fork_guard::GuardedFd(net::listen_tcp(host, 0));
    const net::Address own = net::local_address(listener_.get());
    const bool tells = options_.note && (options_.rank == 0 || !net::is_loopback(own.host));
    const std::string note = tells ? options_.note() : std::string();
    const UniqueFd bell = store.backend()->asks_again() ? net::bind_udp_beside(listener_.get()) : UniqueFd();
    const std::string card = object::encode_string(
        Card{host, own.port, open_door(), host_key(), this_host::name(), ::getpid(), process_space(), note});
    if (store.compare_set(fmt::format("card/{}", options_.rank), "", card) != card) {
        throw InvalidArgument(fmt::format(
            "rank {}: another process has this rank in this world; every rank must be used once", options_.rank));
    }
    std::string table;
    if (options_.rank == 0) {
        std::vector<std::string> keys;
        for (int r = 0; r < n; ++r) keys.push_back(fmt::format("card/{}", r));
        Table all;
        try {
            for (const std::string& bytes : store.backend()->multi_get(keys, left()))
                all.cards.push_back(object::decode_string(bytes).get<Card>());
            if (options_.decide) all.decision = options_.decide(all.cards);
            for (Card& one : all.cards) one.note.clear();  // rank 0 has read them
            all.world = random_id();
            // Connections of a job without a configured secret are proved by one that the (proved) store carries.
            all.secret = security::Secret::generate().to_text();
        } catch (const DistStoreError& error) {
            if (error.code() != ErrorCode::timeout) throw;
            for (int r = 0; r < n; ++r) {
                if (!store.check({keys[static_cast<std::size_t>(r)]})) all.missing.push_back(r);
            }
        }
        table = object::encode_string(all);
        store.set("table", table);
        for (int r = 1; bell && r < static_cast<int>(all.cards.size()); ++r) {
            const Card& one = all.cards[static_cast<std::size_t>(r)];
            net::send_datagram(bell.get(), {one.listen_host, one.listen_port});
        }
    } else {
        try {
            // Rank 0 gives up at the same time; its answer is on the way then.
            table = store.backend()->get_with_bell("table", left() + Milliseconds(1000), bell.get());
        } catch (const DistStoreError& error) {
            if (error.code() != ErrorCode::timeout) throw;
            throw DistStoreError(fmt::format("init of {} ranks: rank 0 did not answer; is it missing?", n),
                                 {.operation = "init", .peer = 0}, ErrorCode::timeout);
        }
    }
    auto all = object::decode_string(table).get<Table>();
    if (!all.missing.empty()) {
        throw DistStoreError(fmt::format("init of {} ranks: {} arrived in time; missing: {}", n,
                                         n - static_cast<int>(all.missing.size()), fmt::join(all.missing, ", ")),
                             {.operation = "init", .rank = options_.rank, .peer = all.missing.front()},
                             ErrorCode::timeout);
    }
    cards_ = std::move(all.cards);
    decision_ = std::move(all.decision);
    world_id_ = all.world;
    const auto configured = security::Secret::from_environment();
    secret_ =
        configured ? configured->derive(fmt::format("world {}", world_id_)) : security::Secret::from_text(all.secret);
}

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

// In this host's memory and under this user, as a process that the kernel can tell from others.
bool Membership::near(int rank) const {
    const Card& card = cards_[static_cast<std::size_t>(rank)];
    const Card& own = cards_[static_cast<std::size_t>(options_.rank)];
    return card.host_key == own.host_key && card.process_space == own.process_space;
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
        // Whoever has a card listens until it leaves.
        if (!fd) fd = net::connect_tcp({card.listen_host, card.listen_port}, deadline, abort, net::Refusal::no_longer);
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

// Without waiting until the parent has looked: what this end has to say waits for it there, even if this rank dies.
bool Membership::attach_unseen(int parent) {
    UniqueFd fd = knock(parent);
    if (!fd) return false;
    const struct {
        Hello hello;
        News confirm;
    } words{{world_id_, Hello::Purpose::lifeline, options_.rank}, {attached, options_.rank}};
    static_assert(sizeof words == sizeof(Hello) + sizeof(News));
    if (::send(fd.get(), &words, sizeof words, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof words) return false;
    adopt(parent, std::move(fd), false);
    return true;
}

// A parent that came much earlier may have left again: then the next, who tells what has happened.
void Membership::build_tree() {
    const std::vector<int> parents = possible_parents();
    for (const int parent : parents) {
        if (attach_unseen(parent)) return;
        try {
            return adopt(parent, dial(parent, true, options_.deadline, nullptr), true);
        } catch (const DistNetworkError&) {
            if (parent == parents.back() || options_.deadline.expired()) throw;
        }
    }
}

// A new parent. The old one, if it still waits for this rank to be safe, may go.
void Membership::adopt(int parent, UniqueFd fd, bool confirmed) {
    {
        const std::lock_guard lock(mutex_);
        for (const auto& old : edges_) {
            if (!old->up || !old->fd) continue;
            const News goodbye{moved, options_.rank};
            (void)!::send(old->fd.get(), &goodbye, sizeof goodbye, MSG_NOSIGNAL | MSG_DONTWAIT);
            ::shutdown(old->fd.get(), SHUT_WR);  // the old parent closes it
            old->up = false;
            old->left = true;
        }
        if (fd) {
            auto edge = std::make_unique<Edge>();
            edge->rank = parent;
            edge->fd = fork_guard::GuardedFd(std::move(fd));
            edge->up = true;
            edge->confirmed = confirmed;
            tell_what_happened(*edge);
            edges_.push_back(std::move(edge));
        }
    }
    ::eventfd_write(stop_.get(), 1);  // the service thread looks at its edges again
}

// Ancestors from the nearest, then all others from the lowest: always lower ranks, so that there are no circles.
std::vector<int> Membership::possible_parents() {
    const std::lock_guard lock(mutex_);
    std::vector<int> parents;
    const auto add = [&](int rank) {
        if (!gone_[static_cast<std::size_t>(rank)] && std::ranges::find(parents, rank) == parents.end())
            parents.push_back(rank);
    };
    for (int rank = options_.rank; rank != 0;) add(rank = parent_of(rank));
    for (int rank = 0; rank < options_.rank; ++rank) add(rank);
    return parents;
}

void Membership::mend_when_due() {
    if (!mend_at_ || Clock::now() < *mend_at_ || mending_ || leaving_) return;
    mend_at_.reset();
    if (mender_.joinable()) mender_.join();
    mending_ = true;
    mender_ = std::thread([this] {
        serving = true;
        mend();
        mending_ = false;
    });
}

// Finds a new parent, or learns that this is the lowest rank that is left.
void Membership::mend() {
    for (;;) {
        const auto parents = possible_parents();
        if (parents.empty()) return adopt(-1, {});
        for (const int parent : parents) {
            {
                const std::lock_guard lock(mutex_);
                if (fatal_ || closing_.raised()) return;
                if (gone_[static_cast<std::size_t>(parent)]) continue;
            }
            try {
                return adopt(parent, dial(parent, true, Deadline::after(mend_attempt), &closing_));
            } catch (const DistError&) {
                // It is leaving too, or cannot answer now: the next.
            }
        }
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, mend_attempt, [this] { return fatal_ || closing_.raised(); });
    }
}

void Membership::wake() const {
    ::eventfd_write(wake_.get(), 1);
}

void Membership::serve() {
    while (!stopping_) {
        std::vector<pollfd> entries{{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
        std::vector<Edge*> edges;
        {
            const std::lock_guard lock(mutex_);
            for (const auto& edge : edges_) {
                if (!edge->fd) continue;
                edges.push_back(edge.get());
                entries.push_back({edge->fd.get(), POLLIN, 0});
            }
        }
        for (const auto& newcomer : newcomers_) entries.push_back({newcomer->fd.get(), POLLIN, 0});
        if (door_) entries.push_back({door_.get(), POLLIN, 0});
        int patience = newcomers_.empty() ? 1000 : 100;
        if (mend_at_) patience = mending_ ? 5 : std::min(patience, 1 + static_cast<int>(mend_delay.count()));
        ::poll(entries.data(), entries.size(), patience);
        eventfd_t value = 0;
        ::eventfd_read(stop_.get(), &value);
        if (stopping_) break;
        for (Edge* edge : edges) {
            while (read_edge(*edge)) {
            }
        }
        accept_newcomers();
        mend_when_due();
    }
}

void Membership::accept_newcomers() {
    const auto admit = [this](auto newcomer) {
        // The oldest that has proved nothing goes first, so that silent strangers cannot keep a peer out.
        if (newcomers_.size() >= newcomers_max) newcomers_.erase(newcomers_.begin());
        newcomers_.push_back(std::move(newcomer));
    };
    while (auto fd = net::try_accept(listener_.get())) admit(std::make_unique<Newcomer>(std::move(*fd), *secret_));
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
            auto edge = std::make_unique<Edge>();
            edge->rank = hello.rank;
            edge->fd = fork_guard::GuardedFd(std::move(n.fd));
            const News answer{attached, options_.rank};
            (void)!::send(edge->fd.get(), &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
            tell_what_happened(*edge);
            edges_.push_back(std::move(edge));
        }
        return;
    }
}

// What a neighbour says, or its end; false if there was nothing (more).
bool Membership::read_edge(Edge& edge) {
    char buffer[1024];
    const ssize_t count = edge.fd ? ::recv(edge.fd.get(), buffer, sizeof buffer, 0) : 0;
    if (!edge.fd || (count < 0 && (errno == EAGAIN || errno == EINTR))) return false;
    if (count <= 0) {
        closed(edge);
        return false;
    }
    edge.inbox.append(buffer, static_cast<std::size_t>(count));
    while (edge.inbox.size() >= sizeof(News)) {
        News news;
        std::memcpy(&news, edge.inbox.data(), sizeof news);
        if (news.text_bytes > news_text_max || news.rank >= options_.world_size || news.rank < least_rank(news.kind)) {
            closed(edge);
            return false;
        }
        if (edge.inbox.size() < sizeof news + news.text_bytes) break;
        const Verdict verdict{news.kind, news.rank, edge.inbox.substr(sizeof news, news.text_bytes), news.group};
        edge.inbox.erase(0, sizeof news + news.text_bytes);
        if (verdict.kind == attached || verdict.kind == moved) {
            const std::lock_guard lock(mutex_);
            if (verdict.kind == moved) edge.left = true;
            if (verdict.kind == attached) edge.confirmed = true;
            std::erase(awaited_, edge.rank);
            changed_.notify_all();
            continue;
        }
        if (verdict.kind == VerdictKind::left) note_goodbye(edge, verdict.rank);
        if (!forward(verdict, &edge) || leaving_) continue;
        options_.on_verdict(verdict);
        wake();
    }
    return true;
}

void Membership::note_goodbye(Edge& edge, int rank) {
    if (rank != edge.rank) return;
    const std::lock_guard lock(mutex_);
    edge.left = true;
    if (edge.up) mend_at_ = Clock::now() + mend_delay;
    changed_.notify_all();
}

// A lifeline has ended: a rank that had said goodbye, or has moved, or was never quite here; else a death. Who leaves
// answers all that have come to its door, so a process that has ended without an answer died.
void Membership::closed(Edge& edge) {
    {
        const std::lock_guard lock(mutex_);  // another thread may be sending news on it
        edge.fd.reset();
        changed_.notify_all();
        if (edge.up) mend_at_ = Clock::now();
        edge.up = false;
        if (edge.left || stopping_) return;
    }
    const Card& card = cards_[static_cast<std::size_t>(edge.rank)];
    const bool known = near(edge.rank) && card.process != cards_[static_cast<std::size_t>(options_.rank)].process;
    const std::optional<std::string> end = known ? end_of(card.process) : std::nullopt;
    if (!edge.confirmed && !end) return;
    const Verdict verdict{
        VerdictKind::peer_lost, edge.rank,
        fmt::format("rank {} ({}, pid {}) is gone: {}", edge.rank, card.host_name, card.process,
                    end.value_or(known ? "its connection closed, though its process lives" : "its connection closed"))};
    if (!forward(verdict, &edge) || leaving_) return;
    options_.on_verdict(verdict);
    wake();
}

// Each piece of news once: while lifelines move there may be two ways to a rank. False if it was known.
bool Membership::forward(const Verdict& verdict, const Edge* except) {
    const std::string_view text = std::string_view(verdict.text).substr(0, news_text_max);
    const News news{verdict.kind, verdict.rank, static_cast<std::uint32_t>(text.size()), verdict.group};
    std::string bytes(reinterpret_cast<const char*>(&news), sizeof news);
    bytes += text;
    const std::lock_guard lock(mutex_);
    if (!heard_.insert(bytes).second) return false;
    news_ += bytes;  // goodbyes too: a rank that is accepted later counts on nobody who has gone
    if (verdict.kind == VerdictKind::left)
        gone_[static_cast<std::size_t>(verdict.rank)] = true;
    else
        fatal_ = true;
    changed_.notify_all();
    for (const auto& edge : edges_) {
        if (edge.get() == except || !edge->fd) continue;
        // News are few and short; a neighbour whose socket is full has stopped, and will be noticed otherwise.
        (void)!::send(edge->fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    return true;
}

// A lifeline that is new here (mutex_ is held): what was flooded before it existed.
void Membership::tell_what_happened(const Edge& edge) {
    if (!news_.empty()) (void)!::send(edge.fd.get(), news_.data(), news_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Membership::flood(const Verdict& verdict) {
    forward(verdict, nullptr);
}

std::vector<std::pair<int, UniqueFd>> Membership::take_incoming() {
    const std::lock_guard lock(mutex_);
    eventfd_t value = 0;
    ::eventfd_read(wake_.get(), &value);
    has_incoming_.store(false, std::memory_order_release);
    return std::exchange(incoming_, {});
}

}  // namespace tutti::rendezvous
