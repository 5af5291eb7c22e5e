#include "rendezvous/table.hpp"

#include "core/assert.hpp"
#include "rendezvous/meeting_records.hpp"

#include <fmt/format.h>

#include <utility>

namespace tutti::rendezvous {

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

TUTTI_OBJECT(Table, cards, decision, world, secret);

std::string encode(const Table& table) {
    TUTTI_ASSERT(!table.cards.empty() && table.world != 0);
    return encode_record(Object(table));
}

std::string encode(const Card& card) {
    return encode_record(Object(card));
}

Card decode_card(std::string_view bytes, int rank) {
    return decode_record<Card>(bytes, "init", fmt::format("the card of rank {}", rank));
}

Table decode_table(std::string_view bytes, int size) {
    auto table = decode_record<Table>(bytes, "init", "the table of the ranks");
    if (std::cmp_equal(table.cards.size(), size)) return table;
    throw DistStoreError(fmt::format("init of {} ranks: the table in the store has {}", size, table.cards.size()),
                         {.operation = "init"});
}

}  // namespace tutti::rendezvous
