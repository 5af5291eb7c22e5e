#include "rendezvous/membership.hpp"

#include "core/env.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

namespace tutti::rendezvous {
namespace {

using nlohmann::json;

/// What a connection is for: the first thing said on it after the handshake.
struct Hello {
    enum class Purpose : std::uint32_t { lifeline = 1, data = 2 };
    std::uint64_t world = 0;
    Purpose purpose = Purpose::data;
    std::int32_t rank = -1;
};

/// A verdict on a lifeline.
struct News {
    VerdictKind kind = VerdictKind::aborted;
    std::int32_t rank = -1;
    std::uint32_t text_bytes = 0;
};
constexpr std::size_t news_text_max = 4096;
constexpr std::size_t newcomers_max = 256;  // well below the usual limit of descriptors

std::uint64_t name_space(const char* name) {
    struct stat status {};
    return ::stat(fmt::format("/proc/self/ns/{}", name).c_str(), &status) == 0 ? status.st_ino : 0;
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
    return {reinterpret_cast<const std::byte*>(&value), sizeof value};
}

std::uint64_t new_world_id() {
    std::uint64_t id = 0;
    security::random_bytes(std::as_writable_bytes(std::span(&id, 1)));
    return id;
}

int parent_of(int rank) {
    return rank & (rank - 1);
}

}  // namespace

std::string host_key() {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    return fmt::format("{}/{}/{}/{}", boot, name_space("ipc"), name_space("net"), ::geteuid());
}

struct Membership::Edge {
    int rank = -1;
    UniqueFd fd;
    std::string inbox;
    bool left = false;
};

struct Membership::Newcomer {
    UniqueFd fd;
    security::Handshake handshake;
    Deadline deadline;
    std::string hello;
    Newcomer(UniqueFd socket, const security::Secret& secret)
        : fd(std::move(socket)),
          handshake(secret, security::Role::accepting, "peer"),
          deadline(Deadline::after(security::handshake_timeout())) {}
};

Membership::Membership(MembershipOptions options) : options_(std::move(options)) {
    wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    exchange_cards();
    thread_ = std::thread([this] { serve(); });
    try {
        build_tree();
    } catch (...) {
        stopping_ = true;
        (void)!::eventfd_write(stop_.get(), 1);
        thread_.join();
        throw;
    }
}

Membership::~Membership() {
    send_goodbye();
    stopping_ = true;
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
}

void Membership::exchange_cards() {
    const int n = options_.world_size;
    Store& store = options_.store;
    const auto left = [&] { return std::chrono::ceil<Milliseconds>(options_.deadline.remaining()); };
    std::string host = options_.listen_host;
    if (host.empty()) host = env::get("TUTTI_HOST").value_or(store.backend()->local_host());
    if (host.empty()) host = "127.0.0.1";  // a store of one host
    listener_ = net::listen_tcp(host, 0);
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    const json card{{"host", host},
                    {"port", net::local_address(listener_.get()).port},
                    {"key", host_key()},
                    {"name", name},
                    {"pid", ::getpid()}};
    if (const auto old = store.compare_set(fmt::format("card/{}", options_.rank), "", card.dump());
        old != card.dump()) {
        throw InvalidArgument(fmt::format(
            "rank {}: another process has this rank in this world; every rank must be used once", options_.rank));
    }
    std::string table;
    if (options_.rank == 0) {
        std::vector<std::string> keys;
        for (int r = 0; r < n; ++r) keys.push_back(fmt::format("card/{}", r));
        json all;
        try {
            store.wait(keys, left());
            for (const std::string& text : store.multi_get(keys)) all["cards"].push_back(json::parse(text));
            all["world"] = new_world_id();
            // Connections of a job without a configured secret are proved by one that the (proved) store carries.
            all["secret"] = security::Secret::generate().to_text();
        } catch (const DistStoreError& error) {
            if (error.code() != ErrorCode::timeout) throw;
            for (int r = 0; r < n; ++r) {
                if (!store.check({keys[static_cast<std::size_t>(r)]})) all["missing"].push_back(r);
            }
        }
        table = all.dump();
        store.set("table", table);
    } else {
        try {
            // Rank 0 gives up at the same time; its answer is on the way then.
            table = store.get("table", left() + Milliseconds(1000));
        } catch (const DistStoreError& error) {
            if (error.code() != ErrorCode::timeout) throw;
            throw DistStoreError(fmt::format("init of {} ranks: rank 0 did not answer; is it missing?", n),
                                 {.operation = "init", .peer = 0}, ErrorCode::timeout);
        }
    }
    const json all = json::parse(table);
    if (all.contains("missing")) {
        const auto missing = all["missing"].get<std::vector<int>>();
        throw DistStoreError(fmt::format("init of {} ranks: {} arrived in time; missing: {}", n,
                                         n - static_cast<int>(missing.size()), fmt::join(missing, ", ")),
                             {.operation = "init", .rank = options_.rank, .peer = missing.front()}, ErrorCode::timeout);
    }
    for (const json& c : all["cards"]) cards_.push_back({c["host"], c["port"], c["key"], c["name"], c["pid"]});
    world_id_ = all["world"];
    const auto configured = security::Secret::from_environment();
    secret_ = configured ? configured->derive(fmt::format("world {}", world_id_))
                         : security::Secret::from_text(all["secret"].get<std::string>());
}

UniqueFd Membership::connect(int rank, const Deadline& deadline, const AbortFlag* abort) {
    return dial(rank, false, deadline, abort);
}

UniqueFd Membership::dial(int rank, bool lifeline, const Deadline& deadline, const AbortFlag* abort) {
    const Hello hello{world_id_, lifeline ? Hello::Purpose::lifeline : Hello::Purpose::data, options_.rank};
    const Card& card = cards_[static_cast<std::size_t>(rank)];
    for (;;) {
        UniqueFd fd = net::connect_tcp({card.listen_host, card.listen_port}, deadline, abort);
        try {
            security::authenticate(fd.get(), *secret_, security::Role::connecting, "peer", deadline, abort);
            net::send_all(fd.get(), bytes_of(hello), deadline, abort, "hello");
            return fd;
        } catch (const DistNetworkError& error) {
            // Closed before it answered: strangers crowd its door. One that is gone refuses the next connection.
            if (error.code() == ErrorCode::security || deadline.expired()) throw;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

void Membership::build_tree() {
    if (options_.rank == 0) return;
    auto edge = std::make_unique<Edge>();
    edge->rank = parent_of(options_.rank);
    edge->fd = dial(edge->rank, true, options_.deadline, nullptr);
    {
        const std::lock_guard lock(mutex_);
        tell_what_happened(*edge);
        edges_.push_back(std::move(edge));
    }
    ::eventfd_write(stop_.get(), 1);  // the service thread looks at its edges again
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
        ::poll(entries.data(), entries.size(), newcomers_.empty() ? 1000 : 100);
        eventfd_t value = 0;
        ::eventfd_read(stop_.get(), &value);
        if (stopping_) break;
        for (Edge* edge : edges) {
            while (read_edge(*edge)) {
            }
        }
        accept_newcomers();
    }
}

void Membership::accept_newcomers() {
    while (auto fd = net::try_accept(listener_.get())) {
        // The oldest that has proved nothing goes first, so that silent strangers cannot keep a peer out.
        if (newcomers_.size() >= newcomers_max) newcomers_.erase(newcomers_.begin());
        newcomers_.push_back(std::make_unique<Newcomer>(std::move(*fd), *secret_));
    }
    for (auto& newcomer : newcomers_) welcome(*newcomer);
    std::erase_if(newcomers_, [](const auto& n) { return !n->fd; });
}

// Goes on with one newcomer as far as its bytes allow; its descriptor is gone when it is done or refused.
void Membership::welcome(Newcomer& n) {
    using State = security::Handshake::State;
    std::array<std::byte, 128> buffer;
    for (;;) {
        if (n.deadline.expired() || n.handshake.state() == State::failed) return n.fd.reset();
        const bool proved = n.handshake.state() == State::done;
        const std::size_t want = proved ? sizeof(Hello) - n.hello.size() : n.handshake.wanted();
        const ssize_t count = ::recv(n.fd.get(), buffer.data(), std::min(want, buffer.size()), 0);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (count <= 0) return n.fd.reset();
        const auto got = std::span(buffer).first(static_cast<std::size_t>(count));
        if (!proved) {
            n.handshake.consume(got);
            const auto output = n.handshake.output();  // short: a fresh socket's buffer takes it
            if (!output.empty()) (void)!::send(n.fd.get(), output.data(), output.size(), MSG_NOSIGNAL);
            n.handshake.sent(output.size());
            continue;
        }
        n.hello.append(reinterpret_cast<const char*>(got.data()), got.size());
        if (n.hello.size() < sizeof(Hello)) continue;
        Hello hello;
        std::memcpy(&hello, n.hello.data(), sizeof hello);
        if (hello.world != world_id_ || hello.rank < 0 || hello.rank >= options_.world_size) return n.fd.reset();
        const std::lock_guard lock(mutex_);
        if (hello.purpose == Hello::Purpose::data) {
            incoming_.emplace_back(hello.rank, std::move(n.fd));
            has_incoming_.store(true, std::memory_order_release);
            wake();
        } else {
            auto edge = std::make_unique<Edge>();
            edge->rank = hello.rank;
            edge->fd = std::move(n.fd);
            tell_what_happened(*edge);
            edges_.push_back(std::move(edge));
        }
        return;
    }
}

// One piece of news from a neighbour, or its end; false if there was nothing (more).
bool Membership::read_edge(Edge& edge) {
    char buffer[1024];
    const ssize_t count = edge.fd ? ::recv(edge.fd.get(), buffer, sizeof buffer, 0) : 0;
    if (!edge.fd || (count < 0 && (errno == EAGAIN || errno == EINTR))) return false;
    const auto close = [&] {  // another thread may be sending news on it
        const std::lock_guard lock(mutex_);
        edge.fd.reset();
    };
    if (count <= 0) {
        close();
        if (edge.left || stopping_) return false;
        const Card& card = cards_[static_cast<std::size_t>(edge.rank)];
        const Verdict verdict{VerdictKind::peer_lost, edge.rank,
                              fmt::format("rank {} ({}, pid {}) is gone", edge.rank, card.host_name, card.process)};
        forward(verdict, &edge);
        options_.on_verdict(verdict);
        wake();
        return false;
    }
    edge.inbox.append(buffer, static_cast<std::size_t>(count));
    while (edge.inbox.size() >= sizeof(News)) {
        News news;
        std::memcpy(&news, edge.inbox.data(), sizeof news);
        if (news.text_bytes > news_text_max) {
            close();
            return false;
        }
        if (edge.inbox.size() < sizeof news + news.text_bytes) break;
        const Verdict verdict{news.kind, news.rank, edge.inbox.substr(sizeof news, news.text_bytes)};
        edge.inbox.erase(0, sizeof news + news.text_bytes);
        if (verdict.kind == VerdictKind::left && verdict.rank == edge.rank) edge.left = true;
        forward(verdict, &edge);
        options_.on_verdict(verdict);
        wake();
    }
    return true;
}

void Membership::forward(const Verdict& verdict, const Edge* except) {
    const std::string_view text = std::string_view(verdict.text).substr(0, news_text_max);
    const News news{verdict.kind, verdict.rank, static_cast<std::uint32_t>(text.size())};
    std::string bytes(reinterpret_cast<const char*>(&news), sizeof news);
    bytes += text;
    const std::lock_guard lock(mutex_);
    news_ += bytes;  // goodbyes too: a rank that is accepted later counts on nobody who has gone
    for (const auto& edge : edges_) {
        if (edge.get() == except || !edge->fd) continue;
        // News are few and short; a neighbour whose socket is full has stopped, and will be noticed otherwise.
        (void)!::send(edge->fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

// A lifeline that is new here (mutex_ is held): what was flooded before it existed.
void Membership::tell_what_happened(const Edge& edge) {
    if (!news_.empty()) (void)!::send(edge.fd.get(), news_.data(), news_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Membership::flood(const Verdict& verdict) {
    forward(verdict, nullptr);
}

void Membership::send_goodbye() {
    flood({VerdictKind::left, options_.rank, {}});
}

std::vector<std::pair<int, UniqueFd>> Membership::take_incoming() {
    const std::lock_guard lock(mutex_);
    eventfd_t value = 0;
    ::eventfd_read(wake_.get(), &value);
    has_incoming_.store(false, std::memory_order_release);
    return std::exchange(incoming_, {});
}

}  // namespace tutti::rendezvous
