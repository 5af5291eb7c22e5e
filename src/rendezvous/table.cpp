#include "rendezvous/table.hpp"

#include "core/rank_list.hpp"
#include "object/codec.hpp"
#include "security/secret.hpp"

#include <tutti/error.hpp>
#include <tutti/object.hpp>
#include <tutti/version.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>
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
    act("world_size", card.world_size);
    act("terms", card.terms);
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
                   "pulse_port", "place_to_try", "cannot_share", "world_size", "terms", "tls", "note"});
}

TUTTI_OBJECT(Failure, kind, rank, text);
TUTTI_OBJECT(Table, missing, cards, decision, world, secret, failure, size);

namespace {

// Ranks write the values for each other behind their own version.
std::string encode_with_version(Object value) {
    return object::encode_string(Object(Object::List{Object(version()), std::move(value)}));
}

// 0.1 of 0.1.7.
std::string_view minor_of(std::string_view version) noexcept {
    const std::size_t first = version.find('.');
    return {version.data(), std::min(version.size(), version.find('.', first + 1))};
}

template <class T>
T decode(std::string_view bytes, const std::string& what) {
    try {
        const Object all = object::decode_string(bytes);
        const Object::List& parts = all.as_list();
        return parts.size() == 2 ? parts[1].get<T>() : all.get<T>();  // the error names the mistake
    } catch (const ObjectError& error) {
        throw DistStoreError(fmt::format("init: {} in the store cannot be read: {}; does every process run the same "
                                         "version of tutti?",
                                         what, error.what()),
                             {.operation = "init"});
    }
}

[[noreturn]] void raise(const Failure& failure, int rank, int size) {
    const ErrorContext context{.operation = "init", .rank = rank, .peer = failure.rank};
    const std::string title = fmt::format("init of {} ranks: ", size);
    switch (failure.kind) {
        case Failure::disagreement: throw InvalidArgument(title + failure.text, context);
        case Failure::failed:
            throw PeerLost(fmt::format("{}rank {} failed while joining: {}", title, failure.rank, failure.text),
                           context);
        case Failure::ended:
            throw PeerLost(fmt::format("{}rank {} is gone: {} before it had joined", title, failure.rank, failure.text),
                           context);
        default: throw DistStoreError(title + "the table in the store cannot be read: an unknown failure", context);
    }
}

Table decode_table(std::string_view bytes, int rank, int size) {
    if (const auto failure = other_version(bytes, 0)) raise(*failure, rank, size);
    return decode<Table>(bytes, "the table of the ranks");
}

Table checked(Table table, int rank, int size) {
    if (table.failure.kind != Failure::none) raise(table.failure, rank, size);
    if (!table.missing.empty()) {
        throw DistStoreError(fmt::format("init of {} ranks: {} of them arrived in time; missing: {}", size,
                                         size - static_cast<int>(table.missing.size()), rank_list(table.missing)),
                             {.operation = "init", .rank = rank, .peer = table.missing.front()}, ErrorCode::timeout);
    }
    const auto ranks = static_cast<int>(table.cards.size());
    if (ranks != size) raise(other_size(rank, size, ranks), rank, size);
    return table;
}

bool is_of_others(const Table& table, int rank, int size) {
    const bool other_size = table.size != 0 && table.size != size;
    switch (table.failure.kind) {
        case Failure::none: return table.missing.empty() ? std::cmp_less_equal(table.cards.size(), rank) : other_size;
        case Failure::failed: return other_size;
        // A process of its number ended before it had written a card.
        case Failure::ended: return other_size || table.failure.rank == rank;
        default: return false;  // ranks contradict each other, perhaps about the size
    }
}

// Whether this thread, which may come again as another rank, reads of the failure for the first time.
bool is_news(const Table& table) {
    // A pointer: where a program loads the library late, the variables of all threads have to fit into a few hundred
    // bytes.
    thread_local std::unique_ptr<std::set<std::uint64_t>> known;
    if (!known) known = std::make_unique<std::set<std::uint64_t>>();
    const bool is_failure = table.failure.kind != Failure::none || !table.missing.empty();
    return !is_failure || known->insert(table.world).second;
}

}  // namespace

std::uint64_t random_id() {
    std::uint64_t id = 0;
    security::random_bytes(std::as_writable_bytes(std::span(&id, 1)));
    return id;
}

std::string card_key(int rank) {
    return fmt::format("card/{}", rank);
}

std::string encode(const Table& table) {
    return encode_with_version(Object(table));
}
// A rank may fail in the same way again: each failure is another one.
std::string encode(const Failure& failure, int world_size) {
    return encode(Table{.world = random_id(), .failure = failure, .size = world_size});
}
std::string encode(const Card& card) {
    return encode_with_version(Object(card));
}

bool can_work_together(std::string_view version, std::string_view other) noexcept {
    return minor_of(version) == minor_of(other);
}

std::optional<Failure> other_version(std::string_view bytes, int rank) {
    try {
        const Object all = object::decode_string(bytes);
        const std::string& theirs = all.as_list().at(0).as_string();
        if (can_work_together(theirs, version())) return std::nullopt;
        return Failure{Failure::disagreement, rank,
                       fmt::format("rank {} runs tutti {}, and this rank tutti {}: expected the same version on all "
                                   "ranks, up to its last number",
                                   rank, theirs, version())};
    } catch (const std::exception&) {
        return std::nullopt;  // it does not say; decoding it gives the error
    }
}

Card decode_card(std::string_view bytes, int rank) {
    return decode<Card>(bytes, fmt::format("the card of rank {}", rank));
}

Table read_table(std::string_view bytes, int rank, int size) {
    return checked(decode_table(bytes, rank, size), rank, size);
}

std::optional<Table> read_own_table(std::string_view bytes, int rank, int size) {
    Table table = decode_table(bytes, rank, size);
    if (is_of_others(table, rank, size) || !is_news(table)) return std::nullopt;
    return checked(std::move(table), rank, size);
}

Failure other_size(int rank, int says, int rank_0_says) {
    return {Failure::disagreement, rank,
            fmt::format("rank {} says {} ranks, rank 0 says {}: expected one WORLD_SIZE (world_size) on all ranks",
                        rank, says, rank_0_says)};
}

bool is_no_card(std::string_view bytes) {
    return bytes.starts_with('-');
}

bool say_failed(const Store& meeting, int rank, int world_size, const std::exception& error, bool entered) {
    constexpr Milliseconds limit{1000};
    const auto* known = dynamic_cast<const DistError*>(&error);
    const ErrorCode code = known != nullptr ? known->code() : ErrorCode::internal;
    // The size of a rank that has not come may be what is wrong.
    const std::string text = encode(Failure{Failure::failed, rank, error.what()}, entered ? world_size : 0);
    StoreBackend& store = *meeting.backend();
    // Where a wait was ended from outside it may still keep a store busy that is not ours.
    const bool busy = code == ErrorCode::interrupted || code == ErrorCode::aborted || code == ErrorCode::timeout;
    if (busy && !store.set_will(table_key, text, limit)) return true;
    const std::string mark = fmt::format("-{}", random_id());
    const bool is_first = !entered && store.compare_set(card_key(rank), "", mark, limit) == mark;
    const std::string stands = store.compare_set(table_key, "", text, limit);
    const auto table = decode<Table>(stands, "the table of the ranks");
    const bool was_there = !is_news(table);
    if (entered || stands == text) return true;
    return is_first && !was_there && table.cards.empty();  // it fails as the others do
}

}  // namespace tutti::rendezvous
