// How the ranks of a world learn of each other: cards, and the table that rank 0 makes of them.
#include "rendezvous/joining.hpp"

#include "core/assert.hpp"
#include "core/descriptors.hpp"
#include "core/env.hpp"
#include "core/patience.hpp"
#include "core/rank_list.hpp"
#include "core/settings.hpp"
#include "core/socket.hpp"
#include "core/this_host.hpp"
#include "rendezvous/place.hpp"
#include "rendezvous/rendezvous.hpp"
#include "rendezvous/table.hpp"
#include "rendezvous/world_meeting.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace tutti::rendezvous {
namespace {

constexpr const char* own_host_only = "127.0.0.1";

std::string process_of(const Card& card) {
    return fmt::format("process {} on {}", card.process, card.host_name);
}

// Both ends of a connection between hosts have to encrypt it, or neither.
void compare_encryption(const std::vector<Card>& cards) {
    const Card& first = cards.front();
    const auto leaves_host = [&](const Card& card) { return network_of(card.host_key) != network_of(first.host_key); };
    const auto other = std::ranges::find_if(cards, [&](const Card& card) { return card.tls != first.tls; });
    if (other == cards.end() || std::ranges::none_of(cards, leaves_host)) return;
    const auto rank = static_cast<int>(other - cards.begin());
    throw Meeting::Disagreement{
        rank,
        fmt::format("TUTTI_TLS is {} for rank 0 ({}) and {} for rank {} ({}): set it to the same on all ranks "
                    "(unset, it is off)",
                    first.tls ? "on" : "off", process_of(first), other->tls ? "on" : "off", rank, process_of(*other))};
}

// The ranks of a world that are threads of one process have the same cards, which grow with the world.
std::shared_ptr<const std::vector<Card>> shared(std::uint64_t world, std::vector<Card> cards) {
    static std::mutex mutex;
    static auto& known = *new std::map<std::uint64_t, std::weak_ptr<const std::vector<Card>>>;
    const std::lock_guard lock(mutex);
    std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
    auto& place = known[world];
    auto common = place.lock();
    if (!common) place = common = std::make_shared<const std::vector<Card>>(std::move(cards));
    return common;
}

}  // namespace

Roster Joining::run() {
    // A connection to and from each rank, for each world of the process; nobody knows how many the program needs
    // beside.
    descriptors::raise();
    const Met met = meet();
    Table table = decode_table(met.cards.front(), options_.world_size);
    if (options_.on_decision) options_.on_decision(table.decision);
    const auto configured = security::Secret::from_environment();
    Roster roster{.rank = options_.rank,
                  .cards = shared(table.world, std::move(table.cards)),
                  .decision = std::move(table.decision),
                  .world = table.world,
                  .secret = configured ? configured->derive(fmt::format("world {}", table.world))
                                       : security::Secret::from_text(table.secret)};
    TUTTI_ASSERT(roster.has(options_.rank) && roster.own().process == ::getpid());
    const auto sees_this_process = [&](const Card& other) { return are_near(other, roster.own()); };
    if (std::ranges::all_of(*roster.cards, sees_this_process)) endpoint_.end_pulse();
    return roster;
}

Met Joining::meet() {
    Attempt alone(options_.store, "world", Attempt::Worlds::one);
    Attempt& attempt = options_.attempt != nullptr ? *options_.attempt : alone;
    constexpr Clock::duration most = std::chrono::hours(24 * 365);
    MeetingTerms terms = attempt.begin(options_.rank, options_.world_size);
    terms.timeout = std::chrono::ceil<Milliseconds>(std::min(options_.deadline.remaining(), most));
    terms.digest = options_.terms;
    terms.words = "says " + options_.terms;
    terms.check = options_.check;
    const Meeting* waiting = nullptr;
    const auto words = [&] { return awaited(waiting->missing(), waiting->process_before()); };
    std::optional<Patience<decltype(words)>> patience;
    const auto card = [&] {
        std::string own = listen();  // has words of its own
        patience.emplace(words);
        return own;
    };
    const auto conclude = [this](const std::vector<std::string>& cards) { return make_table(cards); };
    Meeting meeting = world_meeting(terms, {.card = card, .conclude = conclude});
    waiting = &meeting;
    try {
        Met met = carry_out(options_.store, meeting, meeting.run(), &bell_);
        ring(meeting.cards());
        attempt.end(met);
        return met;
    } catch (const Timeout& late) {
        ring(meeting.cards());
        throw DistStoreError(late.what(), late.context(), ErrorCode::timeout);
    } catch (const InvalidArgument& disagreement) {
        ring(meeting.cards());
        const bool is_for_all = disagreement.context().peer >= 0;
        if (options_.rank == 0 && is_for_all)
            std::this_thread::sleep_for(time_for_others);  // their store may be this process
        throw;
    }
}

std::string Joining::awaited(const std::vector<int>& missing, const std::string& process_before) const {
    const std::string place = options_.store.describe(), before = worlds_before(process_before, options_.rank);
    if (options_.rank != 0)
        return fmt::format("rank 0 to answer rank {} of {} by {}; it answers when all ranks have come{}", options_.rank,
                           options_.world_size, place, before);
    if (missing.empty())
        return fmt::format("what becomes of the {} ranks that have come, by {}", options_.world_size, place);
    const bool near_only = !options_.store.backend()->local_host().empty() && endpoint_.is_loopback();
    return fmt::format("{} of {} to join by {}{}{}", rank_list(missing), options_.world_size, place, before,
                       near_only ? "; only ranks of this host can: for others set TUTTI_JOB_SECRET on all" : "");
}

// The card of this rank.
std::string Joining::listen() {
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
    card.tls = settings::tls();
    if (tells) card.note = options_.note();
    if (options_.store.backend()->asks_again()) bell_ = net::bind_udp_beside(endpoint_.tcp_fd());
    return encode(card);
}

// Rank 0.
std::string Joining::make_table(const std::vector<std::string>& texts) {
    TUTTI_ASSERT(options_.rank == 0 && std::cmp_equal(texts.size(), options_.world_size));
    // A job without a configured secret proves its connections by one that the (proved) store carries.
    Table table{.world = random_id(), .secret = security::Secret::generate().to_text()};
    for (const std::string& text : texts)
        table.cards.push_back(decode_card(text, static_cast<int>(table.cards.size())));
    compare_encryption(table.cards);
    settle_addresses(table.cards);
    if (options_.decide) table.decision = options_.decide(table.cards);
    for (Card& one : table.cards) {  // rank 0 has read them
        one.note.clear();
        one.cannot_share.clear();
    }
    return encode(table);
}

// Rank 0: those that wait may ask the store now.
void Joining::ring(const std::vector<std::string>& cards) const {
    for (std::size_t rank = 0; bell_ && rank < cards.size(); ++rank) {
        if (cards[rank].empty()) continue;
        const Card card = decode_card(cards[rank], static_cast<int>(rank));
        if (card.listen_port != 0) net::send_datagram(bell_.get(), {card.listen_host, card.listen_port});
    }
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
        throw Meeting::Disagreement{
            static_cast<int>(r),
            fmt::format("rank {} ({}) can be reached on its own host alone, and not all ranks are there: set "
                        "TUTTI_HOST for it to the address by which the others reach that host",
                        r, process_of(card))};
    }
}

}  // namespace tutti::rendezvous
