// What stands in a store while ranks meet there (LIFELINES.md): a rank's card, its note on the board, and the outcome.
// Each is an encoded object behind the version of tutti that has written it.
//
// Threads: any; values, and functions of their arguments.
#pragma once

#include "object/codec.hpp"

#include <tutti/error.hpp>
#include <tutti/object.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::rendezvous {

/// The process that a rank is.
struct MeetingProcess {
    std::string space;          ///< processes of one space can tell whether another of it lives
    int number = 0;             ///< in its space
    std::uint64_t started = 0;  ///< tells it from a later process of this number; 0: not known
    std::string in_words{};     ///< "process 4711 on node07"
};
TUTTI_OBJECT(MeetingProcess, space, number, started, in_words);

/// A rank's card: its payload, and what rank 0 compares.
struct MeetingCard {
    std::uint64_t nonce = 0;  ///< each is another one
    int size = 0;
    std::string digest{}, words{};
    MeetingProcess process{};
    std::string payload{};
};
TUTTI_OBJECT(MeetingCard, nonce, size, digest, words, process, payload);

/// A rank's note on the board while it waits. The nonce tells one wait from the next.
struct MeetingNote {
    std::uint64_t nonce = 0;
    std::string id{}, words{};
    std::vector<int> members{};
};
TUTTI_OBJECT(MeetingNote, nonce, id, words, members);

/// How an attempt has ended; all of its ranks read it.
struct MeetingOutcome {
    enum Kind { none, met, late, failed, ended, disagrees };
    int kind = none;
    int rank = -1;            ///< whom it is about
    int size = 0;             ///< how many ranks the writer expected; 0: it is not sure
    std::string text{};       ///< the sentence for all; where they have met: empty
    std::uint64_t nonce = 0;  ///< each is another one
    std::vector<std::string> cards{};
};
TUTTI_OBJECT(MeetingOutcome, kind, rank, size, text, nonce, cards);

/// Instead of a card: its rank cannot come. Why not is the outcome, which comes at once.
inline bool is_no_card(std::string_view bytes) {
    return bytes.starts_with('-');
}

std::uint64_t random_id();
/// The value behind this library's version.
std::string encode_record(Object value);
/// Whether these versions of tutti can be in one job: up to their last number they are equal (VERSIONING.md).
bool can_work_together(std::string_view version, std::string_view other) noexcept;
/// The sentence about `rank`, which has written `bytes`, if its tutti is of another MINOR: the rest of the bytes may be
/// anything then.
std::optional<std::string> other_version(std::string_view bytes, int rank);
/// `what` could not be read.
[[noreturn]] void raise_unreadable(const std::string& operation, const std::string& what, const ObjectError& error);

template <class Record>
Record decode_record(std::string_view bytes, const std::string& operation, const std::string& what) {
    try {
        const Object all = object::decode_string(bytes);
        const Object::List& parts = all.as_list();
        return parts.size() == 2 ? parts[1].get<Record>() : all.get<Record>();  // the error names the mistake
    } catch (const ObjectError& error) {
        raise_unreadable(operation, what, error);
    }
}

}  // namespace tutti::rendezvous
