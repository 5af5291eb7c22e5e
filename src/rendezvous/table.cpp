#include "rendezvous/table.hpp"

#include "core/assert.hpp"
#include "rendezvous/meeting_records.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace tutti::rendezvous {
namespace {

// In the table the cards of a host share what is equal, and their fields have no names: all ranks get all cards, and a
// card takes about 65 bytes there instead of 270.
using HostPart = std::tuple<std::string, std::string, std::string, std::uint64_t, bool>;
using RankPart =
    std::tuple<std::uint64_t, std::uint16_t, std::string, int, std::uint16_t, std::uint64_t, std::string, std::string>;
struct PackedTable {
    std::vector<HostPart> hosts;
    std::vector<RankPart> ranks;  // each begins with the number of its host
    std::string decision;
    std::uint64_t world = 0;
    std::string secret;
};
TUTTI_OBJECT(PackedTable, hosts, ranks, decision, world, secret);

}  // namespace

// A card by the names of its fields in the store.
template <class AnyCard, class Act>
void for_each_field(AnyCard& card, const Act& act) {
    act("listen_host", card.listen_host);
    act("listen_port", card.listen_port);
    act("door", card.local_endpoint);
    act("host_key", card.host_key);
    act("host_name", card.host_name);
    act("process", card.process);
    act("process_space", card.process_space);
    act("pulse_port", card.pulse_port);
    act("place_to_try", card.place_to_try);
    act("cannot_share", card.cannot_share);
    act("tls", card.tls);
    act("note", card.note);
}

inline Object to_object(const Card& card) {
    Object::Map fields;
    for_each_field(card, [&](const char* name, const auto& value) { fields.emplace_back(name, value); });
    return Object::record("Card", std::move(fields));
}

inline void from_object(const Object& object, Card& card) {
    tutti::detail::FieldReader reader(object, "Card");
    for_each_field(card, [&](const char* name, auto& value) { reader.read(name, value); });
    reader.finish({"listen_host", "listen_port", "door", "host_key", "host_name", "process", "process_space",
                   "pulse_port", "place_to_try", "cannot_share", "tls", "note"});
}

std::string encode(const Table& table) {
    TUTTI_ASSERT(!table.cards.empty() && table.world != 0);
    PackedTable packed{.decision = table.decision, .world = table.world, .secret = table.secret};
    std::map<HostPart, std::uint64_t> numbers;
    for (const Card& card : table.cards) {
        const HostPart host{card.listen_host, card.host_key, card.host_name, card.process_space, card.tls};
        const auto [number, is_new] = numbers.emplace(host, packed.hosts.size());
        if (is_new) packed.hosts.push_back(host);
        packed.ranks.emplace_back(number->second, card.listen_port, card.local_endpoint, card.process, card.pulse_port,
                                  card.place_to_try, card.cannot_share, card.note);
    }
    return encode_record(Object(packed));
}

std::string encode(const Card& card) {
    return encode_record(Object(card));
}

Card decode_card(std::string_view bytes, int rank) {
    return decode_record<Card>(bytes, "init", fmt::format("the card of rank {}", rank));
}

Table decode_table(std::string_view bytes, int size) {
    const auto fail = [size](const std::string& why) {
        throw DistStoreError(fmt::format("init of {} ranks: the table in the store {}", size, why),
                             {.operation = "init"});
    };
    auto packed = decode_record<PackedTable>(bytes, "init", "the table of the ranks");
    if (std::cmp_not_equal(packed.ranks.size(), size)) fail(fmt::format("has {}", packed.ranks.size()));
    Table table{.decision = std::move(packed.decision), .world = packed.world, .secret = std::move(packed.secret)};
    table.cards.reserve(packed.ranks.size());
    for (RankPart& rank : packed.ranks) {
        const std::uint64_t host = std::get<0>(rank);
        if (host >= packed.hosts.size())
            fail(fmt::format("names host {} of {}: expected a lower one", host, packed.hosts.size()));
        Card& card = table.cards.emplace_back();
        std::tie(card.listen_host, card.host_key, card.host_name, card.process_space, card.tls) = packed.hosts[host];
        std::tie(std::ignore, card.listen_port, card.local_endpoint, card.process, card.pulse_port, card.place_to_try,
                 card.cannot_share, card.note) = std::move(rank);
    }
    return table;
}

}  // namespace tutti::rendezvous
