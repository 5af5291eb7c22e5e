// Joining and leaving a world, and the thread that serves it meanwhile.
#include "rendezvous/membership.hpp"

#include "core/descriptors.hpp"
#include "core/env.hpp"
#include "core/settings.hpp"
#include "core/this_host.hpp"
#include "object/codec.hpp"
#include "rendezvous/membership_parts.hpp"
#include "rendezvous/place.hpp"
#include "rendezvous/tree.hpp"

#include <tutti/error.hpp>
#include <tutti/object.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace tutti::rendezvous {

TUTTI_OBJECT(Card, listen_host, listen_port, door, host_key, host_name, process, process_space, place_to_try,
             cannot_share, note);

namespace {

// What rank 0 makes of all cards.
struct Table {
    std::vector<int> missing;  // nobody may go on when there are any
    std::vector<Card> cards;
    std::string decision;
    std::uint64_t world = 0;
    std::string secret;
};
TUTTI_OBJECT(Table, missing, cards, decision, world, secret);

constexpr int look_again_ms = 10;  // for those that owe a sign of life

}  // namespace

std::uint64_t random_id() {
    std::uint64_t id = 0;
    security::random_bytes(std::as_writable_bytes(std::span(&id, 1)));
    return id;
}

Membership::Membership(MembershipOptions options)
    : options_(std::move(options)), silence_limit_(settings::lifeline_timeout()) {
    wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    // At most a connection to and from each rank, where they do not share memory.
    descriptors::need(64 + 2 * static_cast<std::uint64_t>(options_.world_size));
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
    for (std::thread& messenger : messengers_) messenger.join();
    if (door_) ::shutdown(door_.get(), SHUT_RD);  // nobody comes any more
    accept_newcomers();                           // who came just now is told that this rank has left
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
    Card own_card{.listen_host = host,
                  .listen_port = own.port,
                  .door = open_door(),
                  .host_key = host_key(),
                  .host_name = this_host::name(),
                  .process = ::getpid(),
                  .process_space = process_space(),
                  .place_to_try = options_.place_to_try,
                  .cannot_share = options_.cannot_share,
                  .note = note};
    const std::string card = object::encode_string(own_card);
    if (store.compare_set(fmt::format("card/{}", options_.rank), "", card) != card) {
        throw InvalidArgument(fmt::format(
            "rank {}: another process has this rank in this world; every rank must be used once", options_.rank));
    }
    std::string table;
    if (options_.rank == 0) {
        std::vector<std::string> keys;  // of the others
        for (int r = 1; r < n; ++r) keys.push_back(fmt::format("card/{}", r));
        // Connections of a job without a configured secret are proved by one that the (proved) store carries.
        Table all{.world = random_id(), .secret = security::Secret::generate().to_text()};
        try {
            all.cards.push_back(std::move(own_card));
            for (const std::string& bytes : keys.empty() ? keys : store.backend()->multi_get(keys, left()))
                all.cards.push_back(object::decode_string(bytes).get<Card>());
            if (options_.decide) all.decision = options_.decide(all.cards);
            for (Card& one : all.cards) {  // rank 0 has read them
                one.note.clear();
                one.cannot_share.clear();
            }
        } catch (const DistStoreError& error) {
            if (error.code() != ErrorCode::timeout) throw;
            all.cards.clear();
            for (int r = 1; r < n; ++r) {
                if (!store.check({keys[static_cast<std::size_t>(r - 1)]})) all.missing.push_back(r);
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

// One look may have begun already, and missed the last who came.
std::uint64_t Membership::next_round() const noexcept {
    return rounds_.load(std::memory_order_acquire) + 2;
}

bool Membership::is_through(std::uint64_t round) const noexcept {
    if (rounds_.load(std::memory_order_acquire) >= round) return true;
    ::eventfd_write(stop_.get(), 1);
    return false;
}

void Membership::wake() const {
    ::eventfd_write(wake_.get(), 1);
}

void Membership::serve() {
    while (!stopping_) {
        int patience = newcomers_.empty() ? 1000 : 100;
        if (mend_at_) patience = mending_ ? 5 : std::min(patience, 1 + static_cast<int>(mend_delay.count()));
        std::vector<pollfd> entries{{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
        std::vector<Edge*> edges;
        {
            const std::lock_guard lock(mutex_);
            for (const auto& edge : edges_) {
                if (!edge->fd) continue;
                edges.push_back(edge.get());
                entries.push_back({edge->fd.get(), POLLIN, 0});
                if (edge->process) entries.push_back({edge->process.get(), POLLIN, 0});
            }
            if (!ledger_.unheard().empty()) patience = look_again_ms;
        }
        for (const auto& newcomer : newcomers_) entries.push_back({newcomer->fd.get(), POLLIN, 0});
        if (door_) entries.push_back({door_.get(), POLLIN, 0});
        ::poll(entries.data(), entries.size(), patience);
        eventfd_t value = 0;
        ::eventfd_read(stop_.get(), &value);
        if (stopping_) break;
        for (Edge* edge : edges) {
            while (read_edge(*edge)) {
            }
            look_at_process(*edge);
        }
        accept_newcomers();
        rounds_.fetch_add(1, std::memory_order_release);
        look_for_silent();
        mend_when_due();
    }
}

}  // namespace tutti::rendezvous
