// How the ranks of a world learn of each other: cards, and the table that rank 0 makes of them.
#include "rendezvous/joining.hpp"

#include "core/descriptors.hpp"
#include "core/env.hpp"
#include "core/patience.hpp"
#include "core/rank_list.hpp"
#include "core/settings.hpp"
#include "core/socket.hpp"
#include "core/this_host.hpp"
#include "rendezvous/place.hpp"
#include "rendezvous/rendezvous.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

namespace tutti::rendezvous {
namespace {

/// Rank 0 looks this often at the ranks that have come while others are missing: they may contradict it, or have
/// failed.
constexpr Milliseconds between_looks{400};
/// A rank waits a little longer than rank 0, whose answer is on the way then.
constexpr Milliseconds answer_time{1000};
constexpr const char* own_host_only = "127.0.0.1";

std::string process_of(const Card& card) {
    return fmt::format("process {} on {}", card.process, card.host_name);
}

// This attempt was over before this rank came, or is that of other ranks.
struct OfOthers {};

}  // namespace

Milliseconds Joining::left() const {
    return std::chrono::ceil<Milliseconds>(options_.deadline.remaining());
}

Roster Joining::run() {
    // A connection to and from each rank, for each world of the process; nobody knows how many the program needs
    // beside.
    descriptors::raise();
    begin();
    const Card own = listen();
    const UniqueFd wakeup =
        options_.store.backend()->asks_again() ? net::bind_udp_beside(endpoint_.tcp_fd()) : UniqueFd();
    Table table = meet(own, wakeup);
    if (options_.on_decision) options_.on_decision(table.decision);
    const auto configured = security::Secret::from_environment();
    Roster roster{.rank = options_.rank,
                  .cards = std::move(table.cards),
                  .decision = std::move(table.decision),
                  .world = table.world,
                  .secret = configured ? configured->derive(fmt::format("world {}", table.world))
                                       : security::Secret::from_text(table.secret)};
    const auto sees_this_process = [&](const Card& other) { return are_near(other, roster.own()); };
    if (std::ranges::all_of(roster.cards, sees_this_process)) endpoint_.end_pulse();
    return roster;
}

// The next steps may take long, or end this process.
void Joining::begin() {
    meeting_ = options_.attempt != nullptr ? options_.attempt->meeting() : options_.store;
    if (options_.world_size == 1) return;
    const Failure end{Failure::ended, options_.rank,
                      fmt::format("process {} on {} ended", ::getpid(), this_host::name())};
    meeting_.backend()->set_will(table_key, encode(end, options_.world_size), left());
}

// In the newest attempt that is not over.
Table Joining::meet(const Card& own, const UniqueFd& wakeup) {
    for (;;) {
        try {
            if (put(own)) return options_.rank == 0 ? gather(own, wakeup) : await_table(wakeup);
        } catch (const OfOthers&) {  // NOLINT(bugprone-empty-catch): the next is this rank's
        }
        options_.attempt->next();
        begin();
    }
}

Card Joining::listen() {
    std::string host = options_.listen_host;
    if (host.empty()) host = env::get("TUTTI_HOST").value_or("");
    const bool chosen = !host.empty();
    if (!chosen) host = options_.store.backend()->local_host();
    if (host.empty()) host = own_host_only;  // a store of one host
    endpoint_.open(host, options_.deadline);
    // Where rank 0 mostly is.
    const bool beside_store = (endpoint_.listens_everywhere() && !chosen) || endpoint_.is_loopback();
    const bool tells = options_.note && (options_.rank == 0 || !beside_store);
    Card card;
    endpoint_.describe(card);
    card.host_key = host_key();
    card.host_name = this_host::name();
    card.process = ::getpid();
    card.process_space = process_space();
    card.place_to_try = options_.place_to_try;
    card.cannot_share = options_.cannot_share;
    card.world_size = options_.world_size;
    card.terms = options_.terms;
    card.tls = settings::tls();
    if (tells) card.note = options_.note();
    return card;
}

// False: a rank of this number has been in this attempt, which is over.
bool Joining::put(const Card& own) {
    const std::string card = encode(own);
    const std::string there = meeting_.compare_set(card_key(options_.rank), "", card);
    if (there == card) {
        note_entered();
        return true;
    }
    if (is_no_card(there)) {
        if (!may_have_next()) (void)accept(meeting_.get(table_key, answer_time));
        return false;
    }
    const Card other = decode_card(there, options_.rank);
    const bool in_threads = are_near(other, own) && other.process == own.process;
    const auto give_up_on = [&](const std::string& refusal) { return meeting_.compare_set(table_key, "", refusal); };
    if (may_have_next() && are_near(other, own) &&
        end_of(other.process, Milliseconds(0))) {  // this one is in its place
        const Failure ended{Failure::ended, options_.rank, fmt::format("{} ended", process_of(other))};
        give_up_on(encode(ended, other.world_size));
        return false;
    }
    const Failure failure{
        Failure::disagreement, options_.rank,
        fmt::format("two {} say that they are rank {}, {}{}: every rank must be used once",
                    in_threads ? "threads" : "processes", options_.rank, in_threads ? "both of " : "",
                    in_threads ? process_of(own) : fmt::format("{} and {}", process_of(other), process_of(own)))};
    const std::string refusal = encode(failure), stands = give_up_on(refusal);
    if (may_have_next() && stands != refusal) {
        before_ = process_of(other);
        return false;
    }
    note_entered();
    const std::string error = fmt::format("rank {}: another {} has this rank in this world: {}", options_.rank,
                                          in_threads ? "thread" : "process", failure.text);
    try {
        (void)accept(stands);
    } catch (const InvalidArgument&) {  // NOLINT(bugprone-empty-catch): what the others read says less
    }
    throw InvalidArgument(error, {.operation = "init", .rank = options_.rank, .peer = options_.rank});
}

std::string Joining::worlds_before() const {
    if (before_.empty()) return "";
    return fmt::format("; a world has met there before, with {} as rank {}, and this rank waits for the next", before_,
                       options_.rank);
}

Table Joining::accept(const std::string& table) const {
    if (!may_have_next()) return read_table(table, options_.rank, options_.world_size);
    if (auto own = read_own_table(table, options_.rank, options_.world_size)) return std::move(*own);
    throw OfOthers();
}

Table Joining::await_table(const UniqueFd& wakeup) {
    const int n = options_.world_size;
    const Patience patience([&] {
        return fmt::format("rank 0 to answer rank {} of {} by {}; it answers when all ranks have come{}", options_.rank,
                           n, options_.store.describe(), worlds_before());
    });
    try {
        return accept(meeting_.backend()->get_with_bell(table_key, left() + answer_time, wakeup.get()));
    } catch (const DistStoreError& error) {
        if (error.code() != ErrorCode::timeout || error.context().operation == "init") throw;
        throw DistStoreError(
            fmt::format("init of {} ranks: rank 0 did not answer; is it missing?{}", n, worlds_before()),
            {.operation = "init", .rank = options_.rank, .peer = 0}, ErrorCode::timeout);
    }
}

// Rank 0.
Table Joining::gather(Card own, const UniqueFd& wakeup) {
    // A job without a configured secret proves its connections by one that the (proved) store carries.
    Table table{.world = random_id(), .secret = security::Secret::generate().to_text(), .size = options_.world_size};
    table.cards.resize(static_cast<std::size_t>(options_.world_size));
    table.cards.front() = std::move(own);
    table.missing = await_cards(table.cards);
    if (table.missing.empty()) {
        compare_encryption(table.cards);
        settle_addresses(table.cards);
    }
    const std::vector<Card> all = table.cards;
    if (table.missing.empty()) {
        if (options_.decide) table.decision = options_.decide(table.cards);
        for (Card& one : table.cards) {  // rank 0 has read them
            one.note.clear();
            one.cannot_share.clear();
        }
    } else {
        table.cards.clear();
    }
    const std::string bytes = encode(table);
    const std::string stands = meeting_.compare_set(table_key, "", bytes);
    for (const Card& one : all) {
        if (wakeup && one.listen_port != 0) net::send_datagram(wakeup.get(), {one.listen_host, one.listen_port});
    }
    return stands == bytes && table.missing.empty() ? std::move(table) : accept(stands);
}

// Fills in the cards; returns the ranks that have not come in time.
std::vector<int> Joining::await_cards(std::vector<Card>& cards) {
    Store& store = meeting_;
    std::vector<int> missing(cards.size() - 1);
    std::iota(missing.begin(), missing.end(), 1);
    const bool near_only = !store.backend()->local_host().empty() && net::is_loopback(cards.front().listen_host);
    const Patience patience([&] {
        return fmt::format("{} of {} to join by {}{}{}", rank_list(missing), cards.size(), options_.store.describe(),
                           worlds_before(),
                           near_only ? "; only ranks of this host can: for others set TUTTI_JOB_SECRET on all" : "");
    });
    const auto take = [&](int rank, const std::string& bytes) {
        if (is_no_card(bytes)) (void)accept(store.get(table_key, answer_time));
        if (const auto failure = other_version(bytes, rank)) refuse(*failure);
        Card card = decode_card(bytes, rank);
        if (card.world_size != options_.world_size) refuse(other_size(rank, card.world_size, options_.world_size));
        if (card.terms != options_.terms)
            refuse({Failure::disagreement, rank,
                    fmt::format("rank {} says {}, rank 0 says {}: expected the same on all ranks", rank, card.terms,
                                options_.terms)});
        cards[static_cast<std::size_t>(rank)] = std::move(card);
    };
    while (!missing.empty()) {
        std::vector<std::string> keys;
        for (const int rank : missing) keys.push_back(card_key(rank));
        try {
            const auto all = store.backend()->multi_get(keys, std::min(left(), between_looks));
            for (std::size_t i = 0; i < all.size(); ++i) take(missing[i], all[i]);
            return {};
        } catch (const DistStoreError& error) {
            if (error.code() != ErrorCode::timeout) throw;
        }
        std::vector<int> come;
        for (const int rank : missing) {
            if (store.check({card_key(rank)})) come.push_back(rank);
        }
        for (const int rank : come) take(rank, store.get(card_key(rank)));
        std::erase_if(missing, [&](int rank) { return std::ranges::find(come, rank) != come.end(); });
        if (options_.deadline.expired()) return missing;
        if (store.check({table_key})) (void)accept(store.get(table_key));
    }
    return {};
}

// Both ends of a connection between hosts have to encrypt it, or neither.
void Joining::compare_encryption(const std::vector<Card>& cards) {
    const Card& first = cards.front();
    const auto leaves_host = [&](const Card& card) { return network_of(card.host_key) != network_of(first.host_key); };
    const auto other = std::ranges::find_if(cards, [&](const Card& card) { return card.tls != first.tls; });
    if (other == cards.end() || std::ranges::none_of(cards, leaves_host)) return;
    const auto rank = static_cast<int>(other - cards.begin());
    refuse({Failure::disagreement, rank,
            fmt::format("TUTTI_TLS is {} for rank 0 ({}) and {} for rank {} ({}): set it to the same on all ranks "
                        "(unset, it is off)",
                        first.tls ? "on" : "off", process_of(first), other->tls ? "on" : "off", rank,
                        process_of(*other))});
}

// Ranks that reached the store on its own host do not know by which address others reach them. Rank 0, if it is one of
// them, asks the system by which one its own traffic leaves.
void Joining::settle_addresses(std::vector<Card>& cards) {
    const std::string here = network_of(cards.front().host_key);
    const auto is_here = [&](const Card& card) { return network_of(card.host_key) == here; };
    const auto elsewhere = std::ranges::find_if_not(cards, is_here);
    std::string address = own_host_only;
    if (elsewhere != cards.end()) address = net::address_towards(elsewhere->listen_host, options_.deadline);
    for (std::size_t r = 0; r < cards.size(); ++r) {
        Card& card = cards[r];
        if (card.listen_host == Endpoint::every_address && is_here(card)) card.listen_host = address;
        const bool unknown = card.listen_host.empty() || card.listen_host == Endpoint::every_address;
        if (!unknown && (elsewhere == cards.end() || !net::is_loopback(card.listen_host))) continue;
        refuse({Failure::disagreement, static_cast<int>(r),
                fmt::format("rank {} ({}) can be reached on its own host alone, and not all ranks are there: set "
                            "TUTTI_HOST for it to the address by which the others reach that host",
                            r, process_of(card))});
    }
}

void Joining::refuse(const Failure& failure) {
    const std::string own = encode(failure), stands = meeting_.compare_set(table_key, "", own);
    if (stands == own) std::this_thread::sleep_for(time_for_others);  // their store may be this process
    (void)accept(stands);                                             // throws the failure that stands there
    throw InternalError("a world that came together was refused");
}

}  // namespace tutti::rendezvous
